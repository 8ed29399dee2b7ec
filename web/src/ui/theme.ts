// The theme, light or dark: `data-theme` on the root element, else the system's choice (theme.css).
import { el } from "./dom.ts";

export type Theme = "light" | "dark";

const DARK = "(prefers-color-scheme: dark)";

/** Return the theme of the page. */
export function currentTheme(): Theme {
  const { theme } = document.documentElement.dataset;
  return (theme ? theme === "dark" : matchMedia(DARK).matches) ? "dark" : "light";
}

/** Switch the whole page to the other theme. */
export function toggleTheme(): void {
  document.documentElement.dataset.theme = currentTheme() === "dark" ? "light" : "dark";
}

/** Call `changed` whenever the system's theme or `data-theme` of the root element (or of `host`) changes, until `signal` aborts. */
export function onThemeChange(changed: () => void, signal?: AbortSignal, host?: Element): void {
  matchMedia(DARK).addEventListener("change", changed, { signal });
  const observer = new MutationObserver(changed);
  for (const place of [document.documentElement, host]) if (place) observer.observe(place, { attributeFilter: ["data-theme"] });
  signal?.addEventListener("abort", () => observer.disconnect());
}

/** Return tokens of theme.css (`line` for `--line`) as plain colors for a canvas, for the color scheme at `host`. A custom
 * property itself would read back as `light-dark(…)`. */
export function tokenColours<T extends string>(host: HTMLElement, tokens: readonly T[]): Record<T, string> {
  // Append all probes before reading any: the browser then computes styles once, not forty times.
  const probes = tokens.map((token) => {
    const probe = el("span");
    probe.style.setProperty("forced-color-adjust", "none"); // forced colors would make all tokens equal
    probe.style.color = `var(--${token})`;
    return probe;
  });
  host.append(...probes);
  const colours = tokens.map((token, i) => [token, getComputedStyle(probes[i]).color]);
  for (const probe of probes) probe.remove();
  return Object.fromEntries(colours) as Record<T, string>;
}
