// Colors: the theme's tokens as plain colors for the canvas, and the color scale of paints.

const TOKENS = [
  ...["bg", "surface", "line", "line-strong", "text", "text-soft", "accent", "error", "error-fill"],
  ...["input-fill", "input-line", "input-text", "output-fill", "output-line", "output-text", "param-fill", "param-line"],
  ...["buffer-fill", "buffer-line", "op-fill", "op-line", "module-fill", "module-line", "frame-line", "frame-a"],
  ...["frame-b", "edge", "edge-label", "decision-fill", "decision-line", "decision-text"],
  ...["close-fill", "only-fill", "differs-fill", "first-fill"],
] as const;

/** The colors of a theme by token, and its font. */
export type CanvasTheme = Record<(typeof TOKENS)[number] | "font", string>;

/** Read the tokens of theme.css as plain colors, for the color scheme at `host`. */
export function readTheme(host: HTMLElement): CanvasTheme {
  // Append all probes before reading any: the browser then computes styles once, not forty times.
  const probes = TOKENS.map((token) => {
    const probe = document.createElement("span");
    probe.style.setProperty("forced-color-adjust", "none"); // forced colors would make all tokens equal
    probe.style.color = `var(--${token})`;
    return probe;
  });
  host.append(...probes);
  const theme = { font: getComputedStyle(host).fontFamily } as CanvasTheme;
  TOKENS.forEach((token, i) => (theme[token] = getComputedStyle(probes[i]).color));
  for (const probe of probes) probe.remove();
  return theme;
}

// Viridis (CC0, Smith and van der Walt 2015) at nine points: perceptually uniform, safe for the color-blind.
const SCALE = "440154 472c7a 3b518b 2c718e 21908d 27ad81 5cc863 aadc32 fde725".split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** Return the color of a position on the scale, from 0 to 1. */
export function scaleColour(share: number): string {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const i = Math.min(Math.floor(at), SCALE.length - 2);
  const mix = SCALE[i].map((a, k) => Math.round(a + (SCALE[i + 1][k] - a) * (at - i)));
  return `rgb(${mix.join(", ")})`;
}

/** Return black or white, whichever is more readable on a color (WCAG relative luminance). */
export function inkOn(colour: string): string {
  const [r, g, b] = colour.match(/\d+/g)!.map((part) => {
    const c = Number(part) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#10131a" : "#ffffff";
}

/** Return the scale as a CSS gradient. */
export const scaleGradient = (): string => `linear-gradient(90deg, ${SCALE.map((c) => `rgb(${c.join(", ")})`).join(", ")})`;
