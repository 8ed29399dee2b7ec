// The color scale of values: Viridis (CC0, Smith and van der Walt 2015) at nine points. It is perceptually uniform and
// safe for the color-blind.
export type Colour = [red: number, green: number, blue: number];

const parse = (colours: string): Colour[] => colours.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)) as Colour);
const SCALE = parse("440154 472c7a 3b518b 2c718e 21908d 27ad81 5cc863 aadc32 fde725");
const HOT = parse("fdae61 e34a33 a50026"); // of what should not be there, such as NaN

/** Return the color of a position on the scale, from 0 to 1. */
export function scaleRgb(share: number, scale = SCALE): Colour {
  const at = Math.min(1, Math.max(0, share)) * (scale.length - 1);
  const i = Math.min(Math.floor(at), scale.length - 2);
  return scale[i].map((a, k) => Math.round(a + (scale[i + 1][k] - a) * (at - i))) as Colour;
}

const css = (colour: Colour): string => `rgb(${colour.join(", ")})`;

/** Return the color of a position on the scale as CSS. */
export const scaleColour = (share: number, hot = false): string => css(scaleRgb(share, hot ? HOT : SCALE));

/** Return the scale as a CSS gradient. */
export const scaleGradient = (hot = false): string => `linear-gradient(90deg, ${(hot ? HOT : SCALE).map(css).join(", ")})`;
