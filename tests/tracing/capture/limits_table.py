"""The rows of docs/limits.md as models, by name."""

import asyncio
import copy
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint


class Case(NamedTuple):
    """One row of the table.

    Attributes:
        build: Returns the model, or the model and keywords of ``trace``.
        given: Returns the inputs.
        opaque: The type of the one operation that represents what cannot be recorded; ``""`` if none.
        same: Whether the outputs are compared with those of a plain call.
    """

    build: Any
    given: Any
    opaque: str
    same: bool


CASES: dict[str, Case] = {}


def numbers():
    return torch.arange(6.0).reshape(2, 3) + 1


def case(name, given=lambda: (numbers(),), *, opaque="", same=True):
    def register(build):
        CASES[name] = Case(build, given, opaque, same)
        return build

    return register


def small():
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU())


@case("modules nested 180 deep")
def _():
    model = nn.Linear(3, 3)
    for _ in range(180):
        model = nn.Sequential(model)
    return model


case("`torch.vmap`")(lambda: lambda x: torch.vmap(lambda row: row.sin() * row.sum(), out_dims=1)(x) + 1)
case("`torch.func.grad`")(lambda: lambda x: torch.func.grad(lambda v: (v**3).sum())(x) + 1)
case("`torch.func` transforms in one another")(
    lambda: (
        lambda x: (
            torch.vmap(torch.func.grad(lambda v: (v**3).sum()))(x) + torch.func.jacrev(torch.sin)(x[0]).sum()
        )
    )
)


@case("`torch.cond`", opaque="cond")
def _():
    return lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1


@case("a compiled submodule")
def _():
    return nn.Sequential(nn.Linear(3, 3), torch.compile(small(), backend="eager"))


case("a compiled model")(lambda: torch.compile(small(), backend="eager"))


@case("`model.compile()`")
def _():
    model = small()
    model.compile(backend="eager")
    return model


case("a `ScriptModule`")(lambda: torch.jit.script(small()))
case("a `ScriptModule` as a part of a model", opaque="recursivescriptmodule")(
    lambda: nn.Sequential(torch.jit.script(small()), nn.ReLU())
)


@case("a function of `torch.jit`", opaque="lambda")
def _():
    scripted = torch.jit.trace(lambda x: x.sin() + 1, (numbers(),))
    return lambda x: scripted(x) * 2


def checkpointed(reentrant):
    layer = nn.Linear(3, 3)

    def step(x):
        x = x.detach().requires_grad_()
        checkpoint(lambda v: torch.tanh(layer(v)), x, use_reentrant=reentrant).sum().backward()
        return x.grad * 2

    return step


case("checkpointing, reentrant, with `backward`")(lambda: checkpointed(True))
case("checkpointing, not reentrant, with `backward`")(lambda: checkpointed(False))


@case("autocast")
def _():
    model = small()

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    return forward


case("`DataParallel` on the CPU")(lambda: nn.DataParallel(small()))


@case("`DistributedDataParallel`")
def _():
    if not torch.distributed.is_initialized():  # a group of one process
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(small())


@case("`ThreadPoolExecutor` inside forward")
def _():
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]

    def forward(x):
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda layer: layer(x), layers))

    return forward


@case("`threading.Thread` inside forward")
def _():
    def forward(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(x.sin()))
        thread.start()
        thread.join()
        return found[0] + 1

    return forward


@case("a forward that is a generator")
def _():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(3, 3)

        def forward(self, x):
            for _ in range(2):
                x = self.step(x)
                yield x

    return Steps()


@case("a forward that is a coroutine")
def _():
    async def forward(x):
        await asyncio.sleep(0)
        return x * 2

    return forward


@case("a coroutine where an event loop is running", same=False)
def _():
    import intus

    async def forward(x):
        return x * 2

    async def outer(x):
        intus.trace(forward, x)

    return lambda x: asyncio.run(outer(x))


case("the `meta` device", lambda: (numbers().to("meta"),), same=False)(lambda: small().to("meta"))


@case("a decision on a `meta` tensor, with `meta_value`", lambda: (numbers().to("meta"),), same=False)
def _():
    def forward(x):
        return x * 2 if x.sum() > 0 else x * x.sum().item()

    return forward, {"meta_value": lambda how, tensor: True if how == "bool" else 1.0}


@case("`FakeTensorMode`", lambda: (), same=False)
def _():
    def forward():
        with FakeTensorMode():
            return nn.Conv2d(3, 3, 1)(torch.ones(2, 3, 4, 4))

    return forward


case("sparse tensors", lambda: (numbers().to_sparse(), numbers()))(
    lambda: lambda a, b: torch.sparse.mm(a * 2, b.T)
)
case("quantised tensors")(lambda: lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize())
case("dynamically quantised modules")(lambda: torch.ao.quantization.quantize_dynamic(small(), {nn.Linear}))
case("complex numbers")(lambda: lambda x: torch.view_as_real(torch.complex(x, x) * 1j).sum())


def ragged(layout):
    return lambda: (torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout),)


case("nested tensors, jagged", ragged(torch.jagged), same=False)(small)
case("nested tensors, strided", ragged(torch.strided), same=False)(small)
case("half precision", lambda: (numbers().half(),))(lambda: small().half())
case("bfloat16", lambda: (numbers().bfloat16(),))(lambda: small().bfloat16())


@case("`autograd.grad` inside forward")
def _():
    def forward(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x**2).sum(), x)[0] + 1

    return forward


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class HostSine(Doubled):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(np.sin(x.detach().numpy()))


@torch.library.custom_op("intus_limits::sine", mutates_args=())
def custom_sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


case("a custom `autograd.Function`")(lambda: lambda x: Doubled.apply(x) + 1)
case("a custom `autograd.Function` in numpy", opaque="host")(lambda: lambda x: HostSine.apply(x * 2) + 1)
case("a custom op (`torch.library`)")(lambda: lambda x: custom_sine(x * 2) + 1)
case("numpy: `from_numpy(np.sin(x.numpy()))`", opaque="host")(
    lambda: lambda x: torch.from_numpy(np.sin((x * 2).numpy())) + 1
)
case("numpy: `torch.tensor(array)`", opaque="tensor")(
    lambda: lambda x: torch.tensor(np.sin((x * 2).numpy())) + 1
)
case("numpy called on a tensor: `np.sin(x)`", opaque="array_wrap")(lambda: lambda x: np.sin(x * 2) + 1)
case("plain numbers: `item()`, `tolist()`")(lambda: lambda x: torch.tensor((x * 2).tolist()) + 1)
case("`copy.deepcopy` of a tensor")(lambda: lambda x: copy.deepcopy(x * 2) + 1)


@case("a tensor through `copy.copy`, `pickle` or `torch.save`")
def _():
    def forward(x):
        file = io.BytesIO()
        torch.save(x * 2, file)
        file.seek(0)
        return copy.copy(x * 2) + pickle.loads(pickle.dumps(x * 3)) + torch.load(file)

    return forward


class Named(torch.Tensor):
    pass


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


case("a tensor subclass", lambda: (numbers().as_subclass(Named),))(small)
case("a tensor subclass with a `__torch_function__`", lambda: (numbers().as_subclass(Own),))(small)


@case("`generate` of Hugging Face", lambda: (torch.tensor([[2, 3, 4]]),))
def _():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 20}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1, pad_token_id=0)).eval()
    return lambda ids: model.generate(ids, max_new_tokens=3, do_sample=False)


@case("a trace inside a trace")
def _():
    import intus

    return lambda x: (
        intus.trace(small_step, x * 2).outputs[0].value + intus.trace(small_step, x)[0].value.sum() + x
    )


def small_step(x):
    return x + 1


case("`torch.inference_mode` inside")(lambda: lambda x: torch.inference_mode()(torch.sin)(x) + 1)
