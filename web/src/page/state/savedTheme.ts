// Remembers the theme that was chosen on this page.
import { currentTheme, onThemeChange, type Theme, toggleTheme } from "../../ui/theme.ts";

const KEY = "intus-theme";

function saved(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // the browser may forbid storage
  }
}

/** Apply the saved theme; call `changed` with the current theme now and after every change. */
export function watchTheme(changed: (theme: Theme) => void): void {
  const theme = saved();
  if (theme) document.documentElement.dataset.theme = theme;
  const report = (): void => changed(currentTheme());
  onThemeChange(report);
  report();
}

/** Switch to the other theme and save it. */
export function switchTheme(): void {
  toggleTheme();
  try {
    localStorage.setItem(KEY, currentTheme());
  } catch {
    // see saved()
  }
}
