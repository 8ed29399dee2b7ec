"""Graphs written by hand, for tests that need no torch: what ran, line by line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from intus.core.graph import (
    BUFFER,
    CREATED,
    FAILED,
    INPUT,
    OP,
    OUTPUT,
    Calls,
    Edges,
    Graph,
    Meta,
    ModuleInfo,
    Ops,
    Param,
    Source,
)


class Draft:
    """Build a Graph by saying what ran."""

    def __init__(self, model: str = "Net") -> None:
        self.model = model
        self.rows: list[dict[str, int]] = []
        self.edges: list[tuple[int, int, str]] = []
        self.calls: list[list[int]] = []
        self.modules: dict[str, ModuleInfo] = {}
        self.params: dict[str, Param] = {}
        self.op_params: list[tuple[int, int]] = []
        self.exits: list[tuple[int, int]] = []
        self.types: dict[str, int] = {}
        self.metas: dict[Meta, int] = {}
        self.stack: list[int] = []
        self.passes: dict[str, int] = {}

    @contextmanager
    def module(self, address: str, type: str, args: str = "") -> Iterator[None]:
        self.modules.setdefault(address, ModuleInfo(address, type, args))
        self.passes[address] = self.passes.get(address, 0) + 1
        number = list(self.modules).index(address)
        call = len(self.calls)
        start = len(self.rows)
        self.calls.append([number, self.passes[address], self.stack[-1] if self.stack else -1, start, start])
        self.stack.append(call)
        yield
        self.stack.pop()
        self.calls[call][4] = len(self.rows)
        if len(self.rows) > start:
            self.exits.append((len(self.rows) - 1, call))

    def row(self, kind: int, type: str, parents: Sequence[int], shape: Sequence[int], flags: int = 0) -> int:
        meta = Meta(tuple(shape), "float32", "cpu", 4 * math.prod(shape))
        row = len(self.rows)
        self.rows.append(
            {
                "kind": kind,
                "type": self.types.setdefault(type, len(self.types)),
                "layer": row,
                "passno": 1,
                "call": self.stack[-1] if self.stack and kind in (OP, BUFFER) else -1,
                "meta": self.metas.setdefault(meta, len(self.metas)),
                "site": 0 if kind == OP else -1,
                "event": row if kind == OP else -1,
                "time": 1000 + 37 * row if kind == OP else 0,
                "flags": flags,
            }
        )
        self.edges += [(parent, row, str(number)) for number, parent in enumerate(parents)]
        return row

    def op(
        self,
        type: str,
        *parents: int,
        shape: Sequence[int],
        params: dict[str, Sequence[int]] | None = None,
        failed: bool = False,
    ) -> int:
        row = self.row(OP, type, parents, shape, (0 if parents else CREATED) | (FAILED if failed else 0))
        for name, size in (params or {}).items():
            self.params.setdefault(name, Param(name, tuple(size), "float32", 4 * math.prod(size), True))
            self.op_params.append((row, list(self.params).index(name)))
        return row

    def layer(
        self,
        address: str,
        cls: str,
        type: str,
        *parents: int,
        shape: Sequence[int],
        args: str = "",
        params: dict[str, Sequence[int]] | None = None,
    ) -> int:
        """A module that runs one operation."""
        with self.module(address, cls, args):
            named = {f"{address}.{name}": size for name, size in (params or {}).items()}
            return self.op(type, *parents, shape=shape, params=named)

    def input(self, *shape: int) -> int:
        return self.row(INPUT, "input", (), shape)

    def output(self, row: int) -> int:
        shape = list(self.metas)[self.rows[row]["meta"]].shape
        return self.row(OUTPUT, "output", (row,), shape)

    def graph(self, error: str = "", **facts: object) -> Graph:
        args = list(dict.fromkeys(arg for _, _, arg in self.edges))
        edges = sorted(self.edges, key=lambda edge: edge[1])

        def column(values: Sequence[int]) -> np.ndarray:
            return np.array(values, dtype=np.int64)

        return Graph(
            model=self.model,
            types=tuple(self.types),
            metas=tuple(self.metas),
            sites=(Source("net.py", 12, "forward"),),
            args=tuple(args),
            params=tuple(self.params.values()),
            modules=tuple(self.modules.values()),
            ops=Ops(len(self.rows), **{name: [row[name] for row in self.rows] for name in self.rows[0]}),
            edges=Edges(
                column([src for src, _, _ in edges]),
                column([dst for _, dst, _ in edges]),
                column([args.index(arg) for _, _, arg in edges]),
            ),
            calls=Calls(*(column([call[n] for call in self.calls]) for n in range(5))),
            op_params=np.array(self.op_params, dtype=np.int64).reshape(-1, 2),
            exits=np.array(self.exits, dtype=np.int64).reshape(-1, 2),
            error=error,
            facts=facts,
        )


def digits_cnn() -> Graph:
    d = Draft("DigitsCNN")
    x = d.input(32, 1, 8, 8)
    with d.module("", "DigitsCNN"):
        with d.module("features", "Sequential"):
            x = d.layer(
                "features.0",
                "Conv2d",
                "conv2d",
                x,
                shape=(32, 16, 8, 8),
                args="1, 16, kernel_size=(3, 3), padding=(1, 1)",
                params={"weight": (16, 1, 3, 3), "bias": (16,)},
            )
            x = d.layer(
                "features.1",
                "BatchNorm2d",
                "batch_norm",
                x,
                shape=(32, 16, 8, 8),
                params={"weight": (16,), "bias": (16,)},
            )
            x = d.layer("features.2", "ReLU", "relu", x, shape=(32, 16, 8, 8))
            x = d.layer(
                "features.3", "MaxPool2d", "max_pool2d", x, shape=(32, 16, 4, 4), args="kernel_size=2"
            )
            x = d.layer(
                "features.4",
                "Conv2d",
                "conv2d",
                x,
                shape=(32, 32, 4, 4),
                args="16, 32, kernel_size=(3, 3), padding=(1, 1)",
                params={"weight": (32, 16, 3, 3), "bias": (32,)},
            )
            x = d.layer("features.5", "ReLU", "relu", x, shape=(32, 32, 4, 4))
        x = d.op("flatten", x, shape=(32, 512))
        x = d.layer(
            "fc1",
            "Linear",
            "linear",
            x,
            shape=(32, 64),
            args="512, 64",
            params={"weight": (64, 512), "bias": (64,)},
        )
        x = d.op("relu", x, shape=(32, 64))
        x = d.layer("dropout", "Dropout", "dropout", x, shape=(32, 64), args="p=0.2")
        x = d.layer(
            "fc2",
            "Linear",
            "linear",
            x,
            shape=(32, 10),
            args="64, 10",
            params={"weight": (10, 64), "bias": (10,)},
        )
    d.output(x)
    return d.graph(seconds=0.0021)


def resnet(blocks: Sequence[int] = (2, 2, 2, 2)) -> Graph:
    d = Draft("ResNet")
    x = d.input(1, 3, 64, 64)

    def conv(address: str, x: int, c: int, s: int, size: tuple[int, ...]) -> int:
        return d.layer(
            address,
            "Conv2d",
            "conv2d",
            x,
            shape=size,
            args=f"{c}, {size[1]}, kernel_size=(3, 3), stride=({s}, {s})",
            params={"weight": (size[1], c, 3, 3)},
        )

    def norm(address: str, x: int, size: tuple[int, ...]) -> int:
        return d.layer(
            address,
            "BatchNorm2d",
            "batch_norm",
            x,
            shape=size,
            args=str(size[1]),
            params={"weight": (size[1],), "bias": (size[1],)},
        )

    with d.module("", "ResNet"):
        c, w = 16, 32
        x = conv("conv1", x, 3, 2, (1, c, w, w))
        x = norm("bn1", x, (1, c, w, w))
        x = d.layer("relu", "ReLU", "relu_", x, shape=(1, c, w, w), args="inplace=True")
        for i, n in enumerate(blocks, 1):
            with d.module(f"layer{i}", "Sequential"):
                for b in range(n):
                    stride = 2 if b == 0 and i > 1 else 1
                    out, size = c * stride, w // stride
                    shape = (1, out, size, size)
                    name = f"layer{i}.{b}"
                    with d.module(name, "BasicBlock"):
                        y = conv(f"{name}.conv1", x, c, stride, shape)
                        y = norm(f"{name}.bn1", y, shape)
                        y = d.layer(f"{name}.relu", "ReLU", "relu_", y, shape=shape, args="inplace=True")
                        y = conv(f"{name}.conv2", y, out, 1, shape)
                        y = norm(f"{name}.bn2", y, shape)
                        skip = x
                        if stride > 1:
                            with d.module(f"{name}.downsample", "Sequential"):
                                skip = conv(f"{name}.downsample.0", x, c, 2, shape)
                                skip = norm(f"{name}.downsample.1", skip, shape)
                        y = d.op("add_", y, skip, shape=shape)
                        x = d.layer(f"{name}.relu", "ReLU", "relu_", y, shape=shape, args="inplace=True")
                    c, w = out, size
        x = d.layer(
            "avgpool",
            "AdaptiveAvgPool2d",
            "adaptive_avg_pool2d",
            x,
            shape=(1, c, 1, 1),
            args="output_size=(1, 1)",
        )
        x = d.op("flatten", x, shape=(1, c))
        x = d.layer(
            "fc",
            "Linear",
            "linear",
            x,
            shape=(1, 10),
            args=f"{c}, 10",
            params={"weight": (10, c), "bias": (10,)},
        )
    d.output(x)
    return d.graph()


def gpt2(layers: int = 12, width: int = 48, tokens: int = 16) -> Graph:
    d = Draft("GPT2LMHeadModel")
    ids = d.input(1, tokens)
    hidden = (1, tokens, width)
    cache: list[int] = []
    with d.module("", "GPT2LMHeadModel"):
        with d.module("transformer", "GPT2Model"):
            position = d.op("arange", shape=(tokens,))
            position = d.op("unsqueeze", position, shape=(1, tokens))
            tok = d.layer(
                "transformer.wte",
                "Embedding",
                "embedding",
                ids,
                shape=hidden,
                args=f"50257, {width}",
                params={"weight": (50257, width)},
            )
            pos = d.layer(
                "transformer.wpe",
                "Embedding",
                "embedding",
                position,
                shape=hidden,
                args=f"1024, {width}",
                params={"weight": (1024, width)},
            )
            x = d.op("add", tok, pos, shape=hidden)
            mask = d.op("tril", d.op("ones", shape=(tokens, tokens)), shape=(tokens, tokens))
            x = d.layer("transformer.drop", "Dropout", "dropout", x, shape=hidden, args="p=0.1")
            for i in range(layers):
                h = f"transformer.h.{i}"
                with d.module(h, "GPT2Block"):
                    y = d.layer(
                        f"{h}.ln_1",
                        "LayerNorm",
                        "layer_norm",
                        x,
                        shape=hidden,
                        args=f"({width},)",
                        params={"weight": (width,), "bias": (width,)},
                    )
                    with d.module(f"{h}.attn", "GPT2SdpaAttention"):
                        with d.module(f"{h}.attn.c_attn", "Conv1D", f"nf={3 * width}, nx={width}"):
                            y = d.op("view", y, shape=(tokens, width))
                            y = d.op(
                                "addmm",
                                y,
                                shape=(tokens, 3 * width),
                                params={
                                    f"{h}.attn.c_attn.weight": (width, 3 * width),
                                    f"{h}.attn.c_attn.bias": (3 * width,),
                                },
                            )
                            y = d.op("view", y, shape=(1, tokens, 3 * width))
                        q, k, v = (d.op("split", y, shape=hidden) for _ in range(3))
                        q, k, v = (d.op("view", t, shape=(1, tokens, 4, width // 4)) for t in (q, k, v))
                        q, k, v = (d.op("transpose", t, shape=(1, 4, tokens, width // 4)) for t in (q, k, v))
                        cache += [k, v]
                        y = d.op(
                            "scaled_dot_product_attention", q, k, v, mask, shape=(1, 4, tokens, width // 4)
                        )
                        y = d.op("transpose", y, shape=(1, tokens, 4, width // 4))
                        y = d.op("reshape", y, shape=hidden)
                        with d.module(f"{h}.attn.c_proj", "Conv1D", f"nf={width}, nx={width}"):
                            y = d.op("view", y, shape=(tokens, width))
                            y = d.op(
                                "addmm",
                                y,
                                shape=(tokens, width),
                                params={f"{h}.attn.c_proj.weight": (width, width)},
                            )
                            y = d.op("view", y, shape=hidden)
                        y = d.layer(
                            f"{h}.attn.resid_dropout", "Dropout", "dropout", y, shape=hidden, args="p=0.1"
                        )
                    x = d.op("add", y, x, shape=hidden)
                    y = d.layer(
                        f"{h}.ln_2",
                        "LayerNorm",
                        "layer_norm",
                        x,
                        shape=hidden,
                        args=f"({width},)",
                        params={"weight": (width,), "bias": (width,)},
                    )
                    with d.module(f"{h}.mlp", "GPT2MLP"):
                        wide = (1, tokens, 4 * width)
                        with d.module(f"{h}.mlp.c_fc", "Conv1D", f"nf={4 * width}, nx={width}"):
                            y = d.op("view", y, shape=(tokens, width))
                            y = d.op(
                                "addmm",
                                y,
                                shape=(tokens, 4 * width),
                                params={f"{h}.mlp.c_fc.weight": (width, 4 * width)},
                            )
                            y = d.op("view", y, shape=wide)
                        with d.module(f"{h}.mlp.act", "NewGELUActivation"):
                            p = d.op("pow", y, shape=wide)
                            p = d.op("mul", p, shape=wide)
                            p = d.op("add", y, p, shape=wide)
                            p = d.op("mul", p, shape=wide)
                            p = d.op("tanh", p, shape=wide)
                            p = d.op("add", p, shape=wide)
                            y = d.op("mul", d.op("mul", y, shape=wide), p, shape=wide)
                        with d.module(f"{h}.mlp.c_proj", "Conv1D", f"nf={width}, nx={4 * width}"):
                            y = d.op("view", y, shape=(tokens, 4 * width))
                            y = d.op(
                                "addmm",
                                y,
                                shape=(tokens, width),
                                params={f"{h}.mlp.c_proj.weight": (4 * width, width)},
                            )
                            y = d.op("view", y, shape=hidden)
                        y = d.layer(f"{h}.mlp.dropout", "Dropout", "dropout", y, shape=hidden, args="p=0.1")
                    x = d.op("add", x, y, shape=hidden)
            x = d.layer(
                "transformer.ln_f",
                "LayerNorm",
                "layer_norm",
                x,
                shape=hidden,
                args=f"({width},)",
                params={"weight": (width,), "bias": (width,)},
            )
        x = d.layer(
            "lm_head",
            "Linear",
            "linear",
            x,
            shape=(1, tokens, 50257),
            args=f"{width}, 50257, bias=False",
            params={"weight": (50257, width)},
        )
    d.output(x)
    for row in cache:
        d.output(row)
    return d.graph()


def chain(length: int) -> Graph:
    d = Draft("Chain")
    x = d.input(4)
    with d.module("", "Chain"):
        for _ in range(length):
            x = d.op("relu", x, shape=(4,))
    d.output(x)
    return d.graph()


def loop(steps: int = 8) -> Graph:
    """A recurrent network unrolled: every step takes its part of one sequence."""
    d = Draft("Loop")
    x = d.input(steps, 4)
    with d.module("", "Loop"):
        h = d.op("zeros", shape=(4,))
        for _ in range(steps):
            part = d.op("getitem", x, shape=(4,))
            h = d.op("tanh", d.op("add", d.op("neg", part, shape=(4,)), h, shape=(4,)), shape=(4,))
    d.output(h)
    return d.graph()


def recurrent(steps: int = 50) -> Graph:
    """A recurrent network whose passes are known to be of the same layers."""
    d = Draft("Recurrent")
    x = d.input(steps, 4)
    first: list[int] = []
    with d.module("", "Recurrent"):
        h = d.op("zeros", shape=(4,))
        for step in range(steps):
            part = d.op("getitem", x, shape=(4,))
            mixed = d.layer("mix", "Linear", "linear", part, shape=(4,), args="4, 4")
            h = d.op("tanh", d.op("sub", mixed, h, shape=(4,)), shape=(4,))
            first = first or list(range(part, h + 1))
            for row, layer in zip(range(part, h + 1), first, strict=True):
                d.rows[row] |= {"layer": layer, "passno": step + 1}
        x = d.op("relu", h, shape=(4,))
    d.output(x)
    numbers = {layer: n for n, layer in enumerate(dict.fromkeys(row["layer"] for row in d.rows))}
    for made in d.rows:
        made["layer"] = numbers[made["layer"]]
    return d.graph()


def branches(count: int = 60) -> Graph:
    """A sum over layers that all read one tensor."""
    d = Draft("Branches")
    x = d.input(2, 8)
    with d.module("", "Branches"):
        total = -1
        for i in range(count):
            part = d.layer(f"branches.{i}", "Linear", "linear", x, shape=(2, 8), args="8, 8")
            total = d.op("add", *([] if total < 0 else [total]), part, shape=(2, 8))
    d.output(total)
    return d.graph()


def hostile() -> Graph:
    """Names that break careless pages."""
    name = "</script><img src=x onerror=alert(1)>"
    d = Draft(name)
    x = d.input(2, 3)
    with d.module("", name):
        for address in ("a&b\"'", "<b>bold</b>", "x[0]:1", "\u202eright", "n" * 10_000, "emoji 🦔", "${x}`"):
            x = d.layer(
                address, "</style><script>alert(2)</script>", "linear", x, shape=(2, 3), args="'\"</script>"
            )
    d.output(x)
    return d.graph(error="<b>boom</b> </script>", note="]]>")
