// What a graph is given besides its scene.
import type { WorkerProgram } from "../layout/layoutWorker.ts";

export interface GraphOptions {
  onSelect?: (address: string | null) => void;
  /** Called with a hash that names what is seen, whenever that changes; `restore` takes it back. */
  onPlace?: (hash: string) => void;
  /** Called whenever the graph was drawn: for one that walks along (`look`, `lookFrom`). */
  onLook?: () => void;
  /** Called whenever other colours are on (`colours`). */
  onPaint?: () => void;
  /** Called with what is typed to be found (`writeSearch`). */
  onSearch?: (text: string) => void;
  /** Whether the toolbar switches between light and dark: for a graph that has the page to itself. */
  themeButton?: boolean;
  /** How many levels of modules to open at first; as many as stay readable when absent. */
  depth?: number | null;
  /** Whether passes of one layer are one box; when absent, where there are too many to read. */
  rolled?: boolean | null;
  /** This program, for the worker that lays out what is large; without it the page itself does. */
  program?: WorkerProgram;
}
