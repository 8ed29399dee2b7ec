// The colors of layers. The hue changes with depth, so that even two hundred lines show the order from input to output.
import type { Theme } from "../../ui/theme.ts";

/** Convert OKLCH to sRGB in hexadecimal (Ottosson, "A perceptual color space", 2020): not every program that opens a saved
 * SVG knows OKLCH. */
export function oklch(lightness: number, chroma: number, hue: number): string {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return "#" + linear.map((x) => byte(x).toString(16).padStart(2, "0")).join("");
}

function byte(linear: number): number {
  const x = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

/** Return the color of a depth from 0 (input) to 1 (output): blue, violet, rose, amber. */
export function depthColour(depth: number, theme: Theme): string {
  const at = Math.min(1, Math.max(0, depth));
  const hue = (245 + 175 * at) % 360;
  return theme === "dark" ? oklch(0.72 + 0.08 * at, 0.13, hue) : oklch(0.5 + 0.12 * at, 0.15, hue);
}

/** Return the color of each address; addresses are in the order from input to output. */
export function depthColours(addresses: string[], theme: Theme): Map<string, string> {
  const last = Math.max(1, addresses.length - 1);
  return new Map(addresses.map((address, i) => [address, depthColour(i / last, theme)]));
}
