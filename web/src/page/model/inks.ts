// The colors of axes, texts and marks in the plot, the heat map and saved pictures.
import { tokenColours } from "../../ui/theme.ts";

const TOKENS = ["text", "text-soft", "line", "surface", "warning", "accent"] as const;

export type Inks = Record<(typeof TOKENS)[number], string>;

/** Read the colors for the theme at `host`. */
export const readInks = (host: HTMLElement): Inks => tokenColours(host, TOKENS);
