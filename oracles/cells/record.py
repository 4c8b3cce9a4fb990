"""Records of arrays, passed to compiled functions as one argument.

Numba unpacks tuples: a function of a tuple of thirty arrays has two hundred arguments, counts references to
thirty arrays, and takes a second to compile. A ``Record`` is passed as one pointer to a header, which
contains the address and the shape of each array. A header never changes, so loads from it are marked as
invariant, and the compiler moves them out of loops.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# Numba's extension interface has no types.

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, ClassVar, dataclass_transform

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

_WORD = ir.IntType(64)


class RecordType(types.Type):
    """The type of a record in compiled code, with the type of each field and its position in the header."""

    def __init__(self, name: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields: dict[str, tuple[Any, int]] = {}
        at = 0
        for field, kind in fields:
            self.fields[field] = kind, at
            at += 1 + (kind.ndim if isinstance(kind, types.Array) else 0)
        # The name contains a hash of the fields, so that cached code for other fields is not used.
        super().__init__(name=f"{name}_{zlib.crc32(repr(fields).encode()):08x}")


@register_model(RecordType)
class _Pointer(models.OpaqueModel):
    """Data model of a record: a pointer to its header."""


@dataclass_transform(frozen_default=True)
class Record:
    """Base class of frozen records of C-ordered arrays and integers, the annotated fields of a subclass."""

    address: int
    _numba_type_: Any  # Numba reads the type of an argument from this attribute
    _types: ClassVar[dict[Any, RecordType]] = {}

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        header: list[int] = []
        kinds: list[Any] = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                if not value.flags.c_contiguous:
                    raise ValueError(f"{field.name} must be in C order: take np.ascontiguousarray of it")
                header += [value.ctypes.data, *value.shape]
                kinds.append((field.name, value.dtype.char, value.ndim, value.flags.writeable))
            else:
                header.append(int(value))
                kinds.append((field.name,))
        words = np.array(header, dtype=np.int64)
        object.__setattr__(self, "_header", words)
        object.__setattr__(self, "address", words.ctypes.data)
        object.__setattr__(self, "_numba_type_", _type_of(type(self).__name__, tuple(kinds)))

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        values = (getattr(self, f.name) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))  # type: ignore[arg-type]


def _type_of(name: str, kinds: tuple[Any, ...]) -> RecordType:
    found = Record._types.get((name, kinds))
    if found is None:
        fields = tuple((kind[0], _field_type(kind)) for kind in kinds)
        found = Record._types.setdefault((name, kinds), RecordType(name, fields))
    return found


def _field_type(kind: Any) -> Any:
    if len(kind) == 1:
        return types.int64
    _, char, ndim, writeable = kind
    return types.Array(from_dtype(np.dtype(char)), ndim, "C", readonly=not writeable)


@unbox(RecordType)
def _unbox(_: Any, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, "address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Fields(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        return kind.fields[name][0] if name in kind.fields else None


@lower_getattr_generic(RecordType)
def _load(context: Any, builder: Any, kind: RecordType, pointer: Any, name: str) -> Any:
    """Load a field from the header. An array is a view, so the caller must keep the memory alive."""
    field, at = kind.fields[name]
    header = builder.bitcast(pointer, _WORD.as_pointer())

    def word(place: int) -> Any:
        loaded = builder.load(cgutils.gep_inbounds(builder, header, place))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if not isinstance(field, types.Array):
        return word(at)
    array = make_array(field)(context, builder)
    shape = [word(at + 1 + axis) for axis in range(field.ndim)]
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(field.dtype)))
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size, flags=["nsw"]))
    data = builder.inttoptr(word(at), array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()
