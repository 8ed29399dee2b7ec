// The scene as Python writes it (intus.viewing.scene): a graph as JSON columns.
import type { Thumbnail } from "../panel/thumbnail.ts";

/** shape, dtype, device, bytes */
export type Meta = [shape: number[], dtype: string, device: string, nbytes: number];
/** file, line, function, and the line's text; line 0 means unknown */
export type Source = [file: string, line: number, fn: string, text?: string];
/** address, shape, dtype, bytes, trained */
export type Param = [address: string, shape: number[], dtype: string, nbytes: number, trainable: boolean];
/** address, class name, constructor arguments, in training mode, site of its forward (-1: unknown), parameters and buffers of its own */
export type Module = [
  address: string,
  type: string,
  args: string,
  training: boolean,
  site: number,
  params: number[],
  buffers: number[],
];
/** A tensor whose value Python read: its row, the kind of statement, the outcome, and the method that read it. */
export type Branch = [row: number, kind: string, way: boolean | null, how: string];

export interface Scene {
  version: 1;
  model: string;
  types: string[];
  metas: Meta[];
  sites: Source[];
  args: string[];
  /** non-tensor arguments of calls */
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
    /** floating point operations, null if unknown */
    flops: Array<number | null>;
    /** index into settings, -1 if the call had only tensor arguments or they are unknown */
    setting: number[];
    /** In a rolled scene: the number of passes of a row, and their labels */
    passes?: number[];
    also?: string[][];
    /** further columns of intus.core.graph.OP_COLUMNS */
    [column: string]: Array<number | null> | string[] | string[][] | undefined;
  };
  /** How columns of ops are combined over the passes of a layer: summed, or OR-ed bit by bit; in others the first pass counts. */
  rolled: Record<string, "sum" | "any">;
  edges: {
    src: number[];
    dst: number[];
    /** index into args, -1 if it is unknown, which only added parameters have (parameters.ts) */
    arg: number[];
    /** In a rolled scene: "Out 1-2" and "In 3" for an edge that does not exist in every pass */
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
  /** Summaries of saved activations, for the rows listed (see panel/values.ts). */
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
    /** The same of parameters, by index into params. */
    params?: { param: number[] } & Record<"mean" | "std" | "low" | "high", (number | null)[]> & Record<"nan" | "inf", number[]>;
  } | null;
  totals: {
    operations: number;
    modules: number;
    /** Null if the length of a parameter is not known. */
    parameters: number | null;
    trainable: number | null;
    bytes: number | null;
    activations: number;
    tensors: number;
    tensorBytes: number;
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
export const PARAMETER = 5;

export const INPLACE = 1;
export const CREATED = 2;
export const FAILED = 4;
