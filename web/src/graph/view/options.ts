// The options of a graph.
import type { WorkerProgram } from "../layout/layoutWorker.ts";
import type { Details } from "../model/details.ts";

export interface GraphOptions {
  /** Called with the address of the selected box, or null. */
  onSelect?: (address: string | null) => void;
  /** Called with a URL hash that describes the view, whenever it changes; `restore` applies it. */
  onPlace?: (hash: string) => void;
  /** Called whenever the graph was drawn, so that another graph can follow (`viewport`, `moveCamera`). */
  onDraw?: () => void;
  /** Called whenever the paint changes (`colours`). */
  onPaint?: () => void;
  /** Called with the text typed into the search field (`writeSearch`). */
  onSearch?: (text: string) => void;
  /** Whether the toolbar has a button for light and dark, for a page that shows nothing else. */
  themeButton?: boolean;
  /** How many levels of modules to open at first; default: as many as are readable. */
  depth?: number | null;
  /** Whether it is part of a page that scrolls, such as a notebook, and takes the wheel only once it is clicked. */
  isGuest?: boolean;
  /** Whether the graph is all of the page, so that its keys work before anything has the focus. */
  ownsPage?: boolean;
  /** Whether the passes of a layer are one box; default: where there would be too many boxes to read. */
  rolled?: boolean | null;
  /** What boxes show; default: names. */
  details?: Details;
  /** This program, for the worker that lays out large graphs; without it the page lays them out. */
  program?: WorkerProgram;
}
