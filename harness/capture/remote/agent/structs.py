"""The few things that a look needs of msgspec, in plain Python: on the other side there may be no msgspec.

Known there under msgspec's own name. Slower, and does not check types: whatever leaves that host is checked on ours.
"""

from __future__ import annotations

import ast
import json as _json
import sys
import types
from collections.abc import Callable
from typing import Any

_MISSING = object()
_Converter = Callable[[Any], Any]


class MsgspecError(Exception):
    pass


class DecodeError(MsgspecError, ValueError):
    pass


ValidationError = DecodeError


class _Field:
    def __init__(self, name: str | None, default: Any) -> None:
        self.name, self.default = name, default


def field(*, name: str | None = None, default: Any = _MISSING) -> Any:
    return _Field(name, default)


class Struct:
    """Frozen or not, all are taken for frozen."""

    _names: tuple[str, ...] = ()
    _encoded: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # noqa: RUF012 (replaced by each class)
    _converters: dict[str, _Converter] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        encoded = dict(zip(cls._names, cls._encoded, strict=True))
        cls._defaults = dict(cls._defaults)
        for name in cls.__dict__.get("__annotations__", {}):  # noqa: RUF063 (inspect is slow to import, and 3.10)
            encoded[name] = name
            default = cls.__dict__.get(name, _MISSING)
            if isinstance(default, _Field):
                encoded[name] = default.name or name
                delattr(cls, name)
                default = default.default
            if default is not _MISSING:
                cls._defaults[name] = default
        cls._names, cls._encoded = tuple(encoded), tuple(encoded.values())
        cls._converters = None

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**self._defaults, **dict(zip(self._names, values, strict=False)), **named}
        if len(values) > len(self._names) or given.keys() != set(self._names):
            wrong = sorted(given.keys() ^ set(self._names))
            raise TypeError(f"{type(self).__name__}: {', '.join(wrong) or 'too many values'}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self._names)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._names)})"


def _to_plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return dict(zip(value._encoded, value._values(), strict=True))
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")


def encode(value: Any) -> bytes:
    """Never more than ASCII, so that no half character breaks a line."""
    return _json.dumps(value, default=_to_plain, separators=(",", ":")).encode()


def decode(data: bytes, type: Any = None) -> Any:
    try:
        plain = _json.loads(data)
        return _find_converter(type)(plain)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DecodeError(f"{error.__class__.__name__}: {error}") from error


class Decoder:
    def __init__(self, type: Any) -> None:
        self._type = type

    def decode(self, data: bytes) -> Any:
        return decode(data, self._type)


def _same(value: Any) -> Any:
    return value


def _find_converter(kind: Any) -> _Converter:
    """Of a type as it stands in a call: a Struct, list[Struct], tuple[Struct, ...]."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lambda plain: _build(kind, plain)
    arguments = getattr(kind, "__args__", ())
    return _of_sequence(kind.__origin__, _find_converter(arguments[0])) if arguments else _same


def _of_sequence(sequence: Any, convert: _Converter) -> _Converter:
    return (lambda plain: sequence(map(convert, plain))) if sequence in (list, tuple) else _same


def _build(kind: Any, plain: dict[str, Any]) -> Any:
    if kind._converters is None:
        kind._converters = dict(_list_converters(kind))
    given = {}
    for name, encoded in zip(kind._names, kind._encoded, strict=True):
        if encoded in plain:
            given[name] = kind._converters[name](plain[encoded])
    return kind(**given)


def _list_converters(kind: Any) -> Any:
    for base in reversed(kind.__mro__):
        for name, annotation in base.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 (as above)
            tree = ast.parse(annotation, mode="eval").body
            yield name, _read_annotation(tree, vars(sys.modules[base.__module__]))


def _read_annotation(tree: ast.expr, names: dict[str, Any]) -> _Converter:
    """From its text: before 3.10 `tuple[X, ...] | None` cannot be evaluated."""
    if isinstance(tree, ast.BinOp):
        sides = [_read_annotation(side, names) for side in (tree.left, tree.right)]
        convert = next((side for side in sides if side is not _same), _same)
        return lambda plain: None if plain is None else convert(plain)
    if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
        inner = tree.slice.elts[0] if isinstance(tree.slice, ast.Tuple) else tree.slice
        sequence = {"list": list, "tuple": tuple}.get(tree.value.id)
        return _of_sequence(sequence, _read_annotation(inner, names)) if sequence else _same
    if isinstance(tree, ast.Name):
        found = names.get(tree.id)
        return _find_converter(found) if isinstance(found, type) else _same
    return _same


def _replace(value: Any, **changes: Any) -> Any:
    return type(value)(**{**value.__dict__, **changes})


def _make_module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(f"msgspec.{name}")
    module.__dict__.update(members)
    sys.modules[module.__name__] = module
    return module


if __name__ == "msgspec":
    json = _make_module("json", encode=encode, decode=decode, Decoder=Decoder)
    structs = _make_module("structs", replace=_replace)
    msgpack = _make_module("msgpack", encode=lambda value: b"", decode=lambda data, type: decode(b"", type))
