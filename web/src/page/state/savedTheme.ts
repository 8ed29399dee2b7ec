// Light or dark: what the system says until someone says otherwise, and the tokens as colours a canvas can take.

export type Theme = "light" | "dark";

const KEY = "intus-theme";
const DARK = "(prefers-color-scheme: dark)";

function saved(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // storage may be forbidden; the page works without a memory
  }
}

/** Apply the remembered theme; call back with the one in force now and whenever anyone changes it. */
export function watchTheme(onchange: (theme: Theme) => void): void {
  const theme = saved();
  if (theme) document.documentElement.dataset.theme = theme;
  const tell = (): void => onchange(currentTheme());
  matchMedia(DARK).addEventListener("change", tell);
  // The graph's toolbar has a switch of its own; whoever sets the attribute, the canvases follow.
  new MutationObserver(tell).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  tell();
}

export function currentTheme(): Theme {
  const set = document.documentElement.dataset.theme;
  if (set === "light" || set === "dark") return set;
  return matchMedia(DARK).matches ? "dark" : "light";
}

/** Turn to the other theme and remember it. */
export function toggleTheme(): void {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // see saved()
  }
}

/** Design tokens (`--line`, …) as computed colours; a custom property alone would read back as `light-dark(…)`. */
export function tokens<T extends string>(host: HTMLElement, names: readonly T[]): Record<T, string> {
  const probe = document.createElement("span");
  host.append(probe);
  const found = {} as Record<T, string>;
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
