"""Hash objects by their content: data, attributes, and the code of functions and classes.

The hash is the same in every process that runs the same code: no address, ``id`` or order of a set enters it.
"""

from __future__ import annotations

import copyreg
import dis
import enum
import importlib.util
import logging
import site
import struct
import sys
import sysconfig
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import cache, cached_property, lru_cache, partial
from hashlib import blake2b
from typing import Any

import numpy as np

_PACKAGE = __name__.partition(".")[0]
_HEAP_TYPE = 1 << 9
_POINTER = struct.calcsize("P")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType, types.NotImplementedType)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_DESCRIPTORS = (
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
#: The attributes of classes that no call depends on.
_OF_CLASSES = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__match_args__"),
        *("__dataclass_fields__", "__dataclass_params__", "__static_attributes__", "__firstlineno__"),
        *("__annotate__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"),
    }
)

#: Attributes of transformers' configurations that keep a ``hash()``, which differs between processes.
_HASHES = frozenset({"_original_object_hash"})


class UnknownContentError(Exception):
    """Raised for an object whose content cannot be known, such as an open file or an object of C."""


class Content:
    """A hash of objects by their content.

    Functions of the caller are hashed by their code, defaults, closure and the globals that they read;
    classes by their attributes. Those of installed packages are hashed by name and version. What code reads
    by other ways (files, the environment, ``globals()``, ``getattr`` of a module) is not seen.

    Example:
        >>> one, other = Content(), Content()
        >>> one.add({"scale": 1.0, "of": lambda x: x + 1})
        >>> other.add({"scale": 1.0, "of": lambda x: x + 2})
        >>> one.digest() == other.digest()
        False
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=20)
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def digest(self) -> str:
        """Return the hash of all values so far."""
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value.

        Raises:
            UnknownContentError: If the content of the value, or of a part of it, cannot be known.
        """
        kind = type(value)
        if kind in _PLAIN:
            self.tag(kind.__name__, repr(value))
        elif kind is tuple:
            self.add_all("tuple", value)
        elif kind in (set, frozenset):
            self._set(value)
        elif self._is_first(value) and not self.special(value):
            self._object(value)

    def add_all(self, name: str, values: Iterable[Any]) -> None:
        """Add values in their order, with their number."""
        values = list(values)
        self.tag(name, len(values))
        for value in values:
            self.add(value)

    def add_named(self, name: str, values: dict[str, Any]) -> None:
        """Add named values in the order of their names."""
        self.tag(name, len(values))
        for key in sorted(values):
            self.tag(key)
            self.add(values[key])

    def tag(self, *facts: str | int | bool | tuple[int, ...] | None) -> None:
        """Add text and numbers."""
        self._hash.update(repr(facts).encode())

    def update(self, content: Any) -> None:
        """Add bytes."""
        self._hash.update(content)

    def special(self, value: Any) -> bool:
        """Add a value of a kind that a subclass knows; return whether it was one."""
        return False

    def reads(self, *names: str) -> None:
        """Handle the names that a function of the caller reads: of globals, attributes and modules."""

    def library(self, module: str) -> None:
        """Handle a module of an installed package, of which only the version is added."""

    def _is_first(self, value: Any) -> bool:
        """Return whether an object was not added before; otherwise add the number that it has."""
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number < len(self._alive):
            self.tag("again", number)
            return False
        self._alive.append(value)  # so that no other object gets its id
        return True

    def _set(self, values: Iterable[Any]) -> None:
        digests = []
        for value in values:
            one = type(self)()
            one.add(value)
            digests.append(one.digest())
        self.tag("set", *sorted(digests))

    def _object(self, value: Any) -> None:
        for kinds, add in _ADDERS:
            if isinstance(value, kinds):
                add(self, value)
                return
        self.instance(value)

    # -- functions ------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> None:
        if "_torchdynamo_orig_callable" in vars(function):
            raise UnknownContentError(f"{function.__qualname__} is compiled")
        if is_of_caller(function):
            self.tag("function")
            self._code(function.__code__)
            self._globals(function)
            self.add_named("attributes", dict(vars(function)))
        else:
            where = str(function.__globals__.get("__name__"))
            self.library(where)
            self.tag("library", where, function.__code__.co_qualname, version(where))
            if "<" in function.__code__.co_qualname:  # a lambda has the name of others
                self._code(function.__code__)
        self.add(function.__defaults__)
        self.add_named("defaults", dict(function.__kwdefaults__ or {}))
        self.tag("closure", len(function.__closure__ or ()))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                self.tag("empty")
            else:
                self.add(content)

    def _code(self, code: types.CodeType) -> None:
        self.tag("code", code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self.tag(*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
        for content in (code.co_code, code.co_exceptiontable):
            self.tag(len(content))
            self.update(content)
        self.add_all("constants", code.co_consts)

    def _globals(self, function: types.FunctionType) -> None:
        """Add what a function reads by name: globals, and attributes of the modules among them."""
        built_in = function.__globals__.get("__builtins__", {})
        built_in = vars(built_in) if isinstance(built_in, types.ModuleType) else built_in
        names, attributes, imported = _names(function.__code__)
        self.reads(*names, *attributes, *imported)
        for name in names:
            self.tag("global", name)
            if name in function.__globals__:
                self._read(function.__globals__[name], attributes, set())
            elif name in built_in:
                self.add(built_in[name])
        for name in imported:
            if not is_module_of_caller(name.partition(".")[0]):
                self.library(name)
            for module in _imported(name, str(function.__globals__.get("__package__") or "")):
                self._read(module, attributes, set())

    def _read(self, value: Any, attributes: tuple[str, ...], seen: set[int]) -> None:
        """Add a global; of a module only those attributes whose names the code has."""
        if not isinstance(value, types.ModuleType):
            self.add(value)
            return
        ours = is_module_of_caller(value.__name__)
        self.reads(value.__name__)
        if not ours:
            self.library(value.__name__)
        self.tag("module", value.__name__, None if ours else version(value.__name__))
        if id(value) in seen:
            return
        seen.add(id(value))
        for name in attributes:
            one = vars(value).get(name)
            if isinstance(one, types.ModuleType) if not ours else one is not None or name in vars(value):
                self.tag("attribute", name)
                self._read(one, attributes, seen)
            elif isinstance(one, types.FunctionType) and is_of_caller(one):
                self.tag("replaced", name)
                self.add(one)

    def _built_in(self, function: Any) -> None:
        owner = function.__self__
        self.library(str(getattr(function, "__module__", None) or "builtins"))
        self.tag("built-in", function.__qualname__, getattr(function, "__module__", None))
        if isinstance(owner, type):
            self.tag(owner.__module__, owner.__qualname__)
        elif not isinstance(owner, types.ModuleType):
            self.add(owner)

    # -- classes --------------------------------------------------------------------------------------

    def _class(self, cls: type) -> None:
        self.tag("class", len(cls.__mro__))
        for base in cls.__mro__:
            self.tag(base.__module__, base.__qualname__, version(base.__module__))
            attributes = {name: one for name, one in vars(base).items() if name not in _OF_CLASSES}
            if not is_module_of_caller(base.__module__):
                self.library(base.__module__)
                replaced = {name: one for name, one in attributes.items() if _is_replaced(one)}
                self.add_named("replaced", replaced)
            elif issubclass(base, enum.Enum):
                self.add_named("enum", {n: one for n, one in attributes.items() if not n.startswith("_")})
            else:
                self.add_named("attributes", attributes)

    def instance(self, value: Any, without: frozenset[str] = frozenset()) -> None:
        """Add an object by its class, its attributes and what it contains.

        Args:
            value: The object.
            without: The names of attributes that are left out.

        Raises:
            UnknownContentError: If the object is one of C that cannot be pickled.
        """
        kind = type(value)
        self.tag("object")
        self.add(kind)
        base = _base_in_c(kind)
        if base is not object:
            contained = _CONTENT.get(base)
            if contained is None:
                self._reduced(value)
                return
            contained(self, value)
        attributes = dict(getattr(value, "__dict__", {})) if kind.__dictoffset__ else {}
        for one in kind.__mro__:
            slots = vars(one).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                descriptor = vars(one).get(_mangled(one, name))
                if isinstance(descriptor, types.MemberDescriptorType):
                    try:
                        attributes[f"{one.__qualname__}.{name}"] = descriptor.__get__(value)
                    except AttributeError:
                        continue
        named = {key: part for key, part in attributes.items() if key not in without | _HASHES}
        self.add_named("attributes", named)

    def _reduced(self, value: Any) -> None:
        """Add an object of C as it is pickled."""
        found = _reduce(value)
        if isinstance(found, str):
            where = str(getattr(value, "__module__", None) or type(value).__module__)
            known = getattr(sys.modules.get(where), found, None) is value
            if not known or is_module_of_caller(where):
                raise UnknownContentError(f"{found} of {where} may change")
            self.tag("global", found, where, version(where))
            return
        self.tag("reduced", len(found))
        for number, part in enumerate(found):
            self.add_all("items", part) if number in (3, 4) and part is not None else self.add(part)

    def array(self, value: np.ndarray) -> None:
        """Add an array of numpy."""
        self.tag("array", repr(value.dtype), value.shape)
        if value.dtype.hasobject:
            self.add_all("elements", value.reshape(-1).tolist())
        elif value.size:
            self.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def is_of_caller(function: Any) -> bool:
    """Return whether a function is neither of an installed package nor of the standard library."""
    file = function.__code__.co_filename
    if file.startswith("<"):  # code without a file, such as that of dataclasses
        return is_module_of_caller(str(function.__globals__.get("__name__")))
    return is_file_of_caller(file) and str(function.__globals__.get("__name__")).split(".")[0] != _PACKAGE


def version(module: str) -> str:
    """Return the version of the package of a module; "" if it has none."""
    found = getattr(sys.modules.get(module.partition(".")[0]), "__version__", "")
    return str(found) if isinstance(found, str) else ""


def is_module_of_caller(name: str) -> bool:
    """Return whether a module is neither of an installed package nor of the standard library."""
    top = name.partition(".")[0]
    if top in (_PACKAGE, "builtins") or top in sys.stdlib_module_names - {"__main__"}:
        return False
    files = (getattr(sys.modules.get(module), "__file__", None) for module in (name, top))
    return all(file is None or is_file_of_caller(file) for file in files)


@cache
def is_file_of_caller(file: str) -> bool:
    """Return whether a file is neither of an installed package nor of the standard library."""
    installed = "site-packages" in file or "dist-packages" in file
    return not installed and not file.startswith(("<frozen", *_folders()))


@cache
def _folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(sorted(path.rstrip("/\\") + sep for path in found for sep in ("/", "\\")))


@cache
def _names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the globals that code reads, all names in it and the modules that it imports."""
    names, attributes, imported = set(), set(code.co_names), set()
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            names.add(one.argval)
        elif one.opname == "IMPORT_NAME":
            imported.add(one.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _names(constant)
            names.update(inner[0])
            attributes.update(inner[1])
            imported.update(inner[2])
    return tuple(sorted(names)), tuple(sorted(attributes)), tuple(sorted(imported))


def _imported(name: str, package: str) -> list[types.ModuleType]:
    """Return the modules of the caller that an import inside a function may mean.

    Raises:
        UnknownContentError: If such a module is not imported yet, so that its content is not known.
    """
    parents = [package.rsplit(".", up)[0] for up in range(package.count(".") + 1)] if package else []
    meant = [name] * bool(name) + [f"{parent}.{name}".rstrip(".") for parent in parents]
    found = [sys.modules[one] for one in meant if one in sys.modules]
    if found:
        return [one for one in found if is_module_of_caller(one.__name__)]
    top = name.partition(".")[0]
    file = None
    if top and is_module_of_caller(top):
        spec = importlib.util.find_spec(top)
        file = None if spec is None else spec.origin
        if file is None or is_file_of_caller(file):
            raise UnknownContentError(f"{name} is not imported yet")
    return []


def _is_replaced(attribute: Any) -> bool:
    """Return whether an attribute of a class of an installed package is a function of the caller."""
    for _ in range(20):
        attribute = getattr(attribute, "__func__", attribute)
        if isinstance(attribute, types.FunctionType) and is_of_caller(attribute):
            return True
        inner = attribute.fget if isinstance(attribute, property) else _vars(attribute).get("__wrapped__")
        if inner is None:
            return False
        attribute = inner
    return False


def _vars(value: Any) -> dict[str, Any]:
    """Return the attributes of a function; nothing for other objects."""
    return vars(value) if isinstance(value, types.FunctionType) else {}


def _base_in_c(kind: type) -> type:
    """Return the first class of the MRO that is not written in Python; ``object`` if there is no other."""
    for base in kind.__mro__:
        if not base.__flags__ & _HEAP_TYPE:
            return base
        new = base.__new__
        if isinstance(new, types.BuiltinFunctionType) and new.__self__ is base:
            return base
        members = [one for one in vars(base).values() if isinstance(one, types.MemberDescriptorType)]
        pointers = len(members) + ("__dict__" in vars(base)) + ("__weakref__" in vars(base))
        parent = base.__base__ or object
        if base.__basicsize__ - parent.__basicsize__ > pointers * _POINTER:  # memory that no attribute has
            return base
    return object


def _reduce(value: Any) -> Any:
    """Return how an object of C is pickled.

    Raises:
        UnknownContentError: If the object says nothing of its content.
    """
    kind = type(value)
    registered = copyreg.dispatch_table.get(kind)
    own = any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    if registered is None and not own:
        raise UnknownContentError(f"{kind.__name__} is an object of C")
    try:
        found: Any = value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception as error:  # whatever an object raises that cannot be pickled
        raise UnknownContentError(f"{kind.__name__}: {error}") from error
    return found


def _mangled(cls: type, name: str) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if private else name


def _items(content: Content, value: Any) -> None:
    content.add_all("map", (part for item in dict.items(value) for part in item))


def _default_items(content: Content, value: Any) -> None:
    content.add(value.default_factory)
    _items(content, value)


def _elements(content: Content, value: Any) -> None:
    content.add_all("list", value.__iter__())


def _array(content: Content, value: np.ndarray) -> None:
    content.array(np.asarray(value))


def _unordered(content: Content, value: Any) -> None:
    content._set(value)


def _as(kind: Callable[[Any], Any]) -> Callable[[Content, Any], None]:
    """Return a function that adds a value as one of a plain type."""
    return lambda content, value: content.tag(repr(kind(value)))


#: How the content is added of objects whose class is derived from one of C.
_CONTENT: dict[type, Callable[[Content, Any], None]] = {
    dict: _items,
    OrderedDict: _items,
    defaultdict: _default_items,
    list: _elements,
    tuple: lambda content, value: content.add_all("tuple", tuple.__iter__(value)),
    deque: lambda content, value: content.add_all("deque", [value.maxlen, *value]),
    set: _unordered,
    frozenset: _unordered,
    int: _as(int.__int__),
    float: _as(float.__float__),
    str: _as(str.__str__),
    bytes: _as(bytes.__bytes__),
    bytearray: _as(bytes),
    np.ndarray: _array,
}


def _method(content: Content, value: types.MethodType) -> None:
    content.add_all("method", (value.__func__, value.__self__))


def _wrapped(content: Content, value: Any) -> None:
    content.add_all(type(value).__name__, (value.__func__,))


def _property(content: Content, value: property) -> None:
    content.add_all("property", (value.fget, value.fset, value.fdel))


def _cached_property(content: Content, value: Any) -> None:
    content.add_all("cached property", (value.func,))


def _partial(content: Content, value: partial[Any]) -> None:
    content.add_all("partial", (value.func, value.args, value.keywords))
    content.add_named("attributes", dict(vars(value)))


def _descriptor(content: Content, value: Any) -> None:
    content.tag("descriptor", value.__objclass__.__module__, value.__objclass__.__qualname__, value.__name__)


def _enum(content: Content, value: enum.Enum) -> None:
    content.add(type(value))
    content.tag(value.name)
    content.add(value.value)


def _module(content: Content, value: types.ModuleType) -> None:
    if is_module_of_caller(value.__name__):
        raise UnknownContentError(f"the module {value.__name__} may change")
    content.library(value.__name__)
    content.tag("module", value.__name__, version(value.__name__))


def _cached(content: Content, value: Any) -> None:
    content.add_all("cached", (value.__wrapped__,))


def _weak(content: Content, value: weakref.ref[Any]) -> None:
    content.add_all("weak", (value(),))


_ADDERS: tuple[tuple[Any, Callable[[Content, Any], None]], ...] = (
    (types.FunctionType, Content._function),
    (enum.Enum, _enum),
    (type, Content._class),
    (types.MethodType, _method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), Content._built_in),
    (_DESCRIPTORS, _descriptor),
    ((staticmethod, classmethod), _wrapped),
    (property, _property),
    (cached_property, _cached_property),
    (partial, _partial),
    (type(lru_cache(len)), _cached),
    (np.memmap, lambda content, value: content.array(np.asarray(value))),
    (types.CodeType, Content._code),
    (types.ModuleType, _module),
    (types.MappingProxyType, lambda content, value: content.add(dict(value))),
    (np.dtype, lambda content, value: content.tag("dtype", repr(value))),
    (np.generic, lambda content, value: content.array(np.asarray(value))),
    (weakref.ref, _weak),
    (logging.Logger, lambda content, value: content.tag("logger", value.name)),
    (_LOCKS, lambda content, value: content.tag("lock")),
)
