// Colours: the theme's tokens as the canvas needs them, and the scale that paints boxes.

const TOKENS = [
  ...["bg", "surface", "line", "line-strong", "text", "text-soft", "accent", "error", "error-fill"],
  ...["input-fill", "input-line", "input-text", "output-fill", "output-line", "output-text", "param-fill", "param-line"],
  ...["buffer-fill", "buffer-line", "op-fill", "op-line", "module-fill", "module-line", "frame-line", "frame-a"],
  ...["frame-b", "edge", "edge-label", "decision-fill", "decision-line", "decision-text"],
  ...["close-fill", "only-fill", "differs-fill", "first-fill"],
] as const;

export type CanvasTheme = Record<(typeof TOKENS)[number] | "font", string>;

/** The tokens of theme.css as plain colours, for the scheme that holds at `host`. */
export function readTheme(host: HTMLElement): CanvasTheme {
  // One probe for each, read after all stand: the browser then works out their styles once, not forty times.
  const probes = TOKENS.map((token) => {
    const probe = document.createElement("span");
    probe.style.setProperty("forced-color-adjust", "none"); // else all are one, and the picture is a black sheet
    probe.style.color = `var(--${token})`;
    return probe;
  });
  host.append(...probes);
  const theme = { font: getComputedStyle(host).fontFamily } as CanvasTheme;
  TOKENS.forEach((token, i) => (theme[token] = getComputedStyle(probes[i]).color));
  for (const probe of probes) probe.remove();
  return theme;
}

// Viridis (CC0, Smith and van der Walt 2015) at nine places: perceptually uniform, safe for the colour-blind.
const SCALE = "440154 472c7a 3b518b 2c718e 21908d 27ad81 5cc863 aadc32 fde725".split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** The colour of a share between 0 and 1. */
export function scaleColour(share: number): string {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const i = Math.min(Math.floor(at), SCALE.length - 2);
  const mix = SCALE[i].map((a, k) => Math.round(a + (SCALE[i + 1][k] - a) * (at - i)));
  return `rgb(${mix.join(", ")})`;
}

/** Black or white, whichever reads better on a colour (WCAG relative luminance). */
export function inkOn(colour: string): string {
  const [r, g, b] = colour.match(/\d+/g)!.map((part) => {
    const c = Number(part) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#10131a" : "#ffffff";
}

export const scaleGradient = (): string => `linear-gradient(90deg, ${SCALE.map((c) => `rgb(${c.join(", ")})`).join(", ")})`;
