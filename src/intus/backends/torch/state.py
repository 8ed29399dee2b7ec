"""Hash all that decides the output of a module besides its input."""

from __future__ import annotations

import types
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..content import Content, UnknownContentError

_PACKAGE = __name__.partition(".")[0]
_FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_BACKWARD_HOOKS = ("_backward_pre_hooks", "_backward_hooks")
#: Attributes of modules that are hashed by other means, or that no call of the model depends on.
_LEFT_OUT = frozenset(
    {
        *("_parameters", "_buffers", "_modules", "_compiled_call_impl", "_non_persistent_buffers_set"),
        *(*_FORWARD_HOOKS, *_BACKWARD_HOOKS, "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"),
        *("_forward_hooks_always_called", "_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    }
)
#: Attributes of modules of ``torch.fx`` that their code was made from.
_OF_GRAPH = frozenset({"_graph", "_codegen", "_tracer_cls", "_tracer_extras", "_graphmodule_cls_name"})


def model_state(model: nn.Module) -> str | None:
    """Return a hash of all that decides the output of a model besides its input; None if it cannot be known.

    It covers of each module the parameters, buffers and submodules, every other attribute by content, the
    hooks (but for those of intus), and the code of its class, and of what that calls or reads in globals.
    A model that a forward pass changes (a counter) has another hash afterwards.

    The hash cannot be known for compiled and scripted modules and for objects without known content, such as
    open files and generators. It does not cover the settings of the process (the default dtype, autocast,
    deterministic algorithms, the number of threads), environment variables, or files that ``forward`` reads.

    Args:
        model: The model.
    """
    content = _TorchContent()
    try:
        content.tag("torch", torch.__version__)
        content.add(model)
        for name in ("_global_forward_pre_hooks", "_global_forward_hooks"):
            content.hooks(name, getattr(torch_module, name))
        for name in ("_global_backward_pre_hooks", "_global_backward_hooks"):
            content.hooks(name, getattr(torch_module, name))
    except Exception:  # whatever the objects of the caller raise when they are read
        return None
    return content.digest()


class _TorchContent(Content):
    """The content of objects among which there are modules and tensors."""

    def special(self, value: Any) -> bool:
        """Add a module, a tensor or a constant of torch; return whether it was one."""
        if isinstance(value, nn.Module):
            self._module(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            self.tag(repr(value))
        else:
            return False
        return True

    def hooks(self, name: str, hooks: Any, keywords: Any = ()) -> None:
        """Add hooks, but for those of intus, without the numbers that torch gives them."""
        others = [(hook, key in keywords) for key, hook in (hooks or {}).items() if not _is_of_intus(hook)]
        self.add_all(name, others)

    def _module(self, module: nn.Module) -> None:
        compiled = vars(module).get("_compiled_call_impl")
        is_compiled = isinstance(module, torch.jit.ScriptModule) or "_orig_mod" in vars(module)["_modules"]
        if is_compiled or not (compiled is None or _is_of_intus(compiled)):
            raise UnknownContentError(f"{type(module).__name__} is compiled")
        self.instance(module, _LEFT_OUT | _OF_GRAPH if _is_graph(module) else _LEFT_OUT)
        for name in ("_parameters", "_buffers", "_modules"):
            self.tag(name)
            for key, part in vars(module)[name].items():  # in the order in which containers run them
                self.tag(key)
                self.add(part)
        for name in _FORWARD_HOOKS:
            self.hooks(name, vars(module).get(name), vars(module).get(f"{name}_with_kwargs", ()))
        for name in _BACKWARD_HOOKS:
            self.hooks(name, vars(module).get(name))

    def _tensor(self, tensor: Tensor) -> None:
        self.tag("tensor", str(tensor.dtype), tuple(tensor.shape))
        if type(tensor) not in (Tensor, nn.Parameter):
            if not issubclass(type(tensor), nn.Parameter):
                raise UnknownContentError(f"{type(tensor).__name__} is a subclass of tensors")
            self.add(type(tensor))
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
            raise UnknownContentError(f"a tensor of layout {tensor.layout} on {tensor.device}")
        self.add_named("attributes", dict(vars(tensor)))
        self.hooks("hooks", tensor._backward_hooks if tensor.is_leaf else None)
        values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if values.numel():
            self.update(values.view(torch.uint8).numpy().data)


def _is_graph(module: nn.Module) -> bool:
    """Return whether the class of a module was made by ``torch.fx``, with the code of its ``forward``."""
    return any(base.__module__ == "torch.fx.graph_module" for base in type(module).__mro__)


def _is_of_intus(hook: Any) -> bool:
    """Return whether a hook is one of this package."""
    while isinstance(hook, partial | types.MethodType):
        hook = hook.func if isinstance(hook, partial) else hook.__func__
    owner = hook if isinstance(hook, types.FunctionType) else type(hook)
    return str(owner.__module__).partition(".")[0] == _PACKAGE
