// The scene as Python writes it (intus.viewing.scene): a core Graph as JSON columns.
import type { Thumbnail } from "../panel/thumbnail.ts";

/** shape, dtype, device, bytes */
export type Meta = [shape: number[], dtype: string, device: string, nbytes: number];
/** file, line, function, and the line's text; line 0 means unknown */
export type Source = [file: string, line: number, fn: string, text?: string];
/** address, shape, dtype, bytes, trained */
export type Param = [address: string, shape: number[], dtype: string, nbytes: number, trainable: boolean];
/** address, class name, constructor arguments, in training mode, site of its forward (-1 unknown), own parameters and buffers */
export type Module = [
  address: string,
  type: string,
  args: string,
  training: boolean,
  site: number,
  params: number[],
  buffers: number[],
];
/** A tensor's plain value that Python asked for: its row, what it decided, which way, and by which method. */
export type Branch = [row: number, kind: string, way: boolean | null, how: string];

export interface Scene {
  version: 1;
  model: string;
  types: string[];
  metas: Meta[];
  sites: Source[];
  args: string[];
  /** what calls were given besides tensors */
  settings: string[];
  params: Param[];
  modules: Module[];
  branches?: Branch[];
  ops: {
    label: string[];
    kind: number[];
    type: number[];
    layer?: number[];
    passno?: number[];
    call: number[];
    meta: number[];
    site: number[];
    event: number[];
    time: number[];
    flags: number[];
    /** floating point operations, null where they are not known */
    flops: Array<number | null>;
    /** index into settings, -1 where the call was given nothing but tensors or that is not known */
    setting: number[];
    /** Of a rolled scene: how many passes a row stands for, and what those were called. */
    passes?: number[];
    also?: string[][];
    /** Further columns of intus.core.graph.OP_COLUMNS. */
    [column: string]: Array<number | null> | string[] | string[][] | undefined;
  };
  /** Columns of ops of which the passes of a layer are summed, or joined bit by bit; of the others the first pass counts. */
  rolled: Record<string, "sum" | "any">;
  edges: {
    src: number[];
    dst: number[];
    arg: number[];
    /** Of a rolled scene: "Out 1-2" and "In 3" where an edge is not every pass's. */
    out?: string[];
    into?: string[];
  };
  calls: {
    address: string[];
    module: number[];
    passno: number[];
    parent: number[];
    start: number[];
    stop: number[];
    passes?: number[];
    also?: string[][];
  };
  opParams: { op: number[]; param: number[] };
  /** What saved activations looked like, for the rows it names (see panel/values.ts). */
  values?: {
    row: number[];
    mean: (number | null)[];
    std: (number | null)[];
    low: (number | null)[];
    high: (number | null)[];
    nan: number[];
    inf: number[];
    zero: (number | null)[];
    histogram: number[][];
    picture?: (Thumbnail | null)[];
  } | null;
  totals: {
    operations: number;
    modules: number;
    parameters: number;
    trainable: number;
    bytes: number;
    activations: number;
    seconds: number;
  };
  error: string;
  facts: Record<string, unknown>;
}

export const OP = 0;
export const INPUT = 1;
export const OUTPUT = 2;
export const BUFFER = 3;
export const CONSTANT = 4;

export const INPLACE = 1;
export const CREATED = 2;
export const FAILED = 4;
