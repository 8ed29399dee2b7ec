// The scene as Python writes it (intus.viewing.scene): a core Graph as JSON columns.

/** shape, dtype, device, bytes */
export type Meta = [shape: number[], dtype: string, device: string, nbytes: number];
/** file, line, function; line 0 means unknown */
export type Source = [file: string, line: number, fn: string];
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
  ops: {
    label: string[];
    kind: number[];
    type: number[];
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
  };
  edges: { src: number[]; dst: number[]; arg: number[] };
  calls: {
    address: string[];
    module: number[];
    passno: number[];
    parent: number[];
    start: number[];
    stop: number[];
  };
  opParams: { op: number[]; param: number[] };
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

export const INPLACE = 1;
export const CREATED = 2;
export const FAILED = 4;
