"""The closed vocabulary of what may stand in a file beside arrays: parameters of ops, sizes, fragments, plans, loops.

A value is a tag and what it needs. Things that many nodes have in common, such as fragments and lines of source, are
*entries*: written once, in the order in which they are first needed, and referred to by number. What an entry says is
its key, so equal things are one entry, and who goes on with a file needs no more than the entries in it.

A class is in the vocabulary if it is in the table of `vocabulary`: a name, what it is made of, and how to make it.
Nothing else is ever made, and nothing is looked up by a name that a file gives but ops and functions of users.
Values are written by `encoder` and read by `decoder`; this is what both know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unspool._core import memory_of
from unspool._dtypes import SUPPORTED
from unspool.errors import SaveError, SaveFileError

(
    NONE,
    TRUE,
    FALSE,
    INT,
    FLOAT,
    COMPLEX,
    TEXT,
    BYTES,
    TUPLE,
    LIST,
    DICT,
    SET,
    ELLIPSIS,
    SLICE,
    DTYPE,
    DIM,
    ARRAY,
    NUMBER,
    OBJECT,
    ENTRY,
    NODE,
) = range(21)

# Values are in each other up to so many levels; what nests deeper is no file of ours.
DEEPEST = 40

DTYPES = {str(dtype): np.dtype(dtype) for dtype in SUPPORTED}
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Word(NamedTuple):
    """A class of the vocabulary.

    Attributes
    ----------
    name : str
        What it is called in files.
    type : type
    split : callable
        ``split(value)`` returns a tuple of values of the vocabulary.
    join : callable
        ``join(*parts)`` makes it again. It runs nothing but our own code, and raises if the parts do not fit.
    is_entry : bool
        Whether many values refer to one, so that it is an entry.
    key : callable
        ``key(value)`` is the same for entries that are, as long as one of them lives; None is for their identity.
    is_fixed : bool
        Whether what it is split into never changes, as long as it lives.
    has_form : bool
        Whether entries of this class take long to write and are written again, into other files: then their form is
        kept.
    """

    name: str
    type: type
    split: Callable[[Any], tuple[Any, ...]]
    join: Callable[..., Any]
    is_entry: bool = False
    key: Callable[[Any], Any] | None = None
    is_fixed: bool = False
    has_form: bool = False


def checked(value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    if not isinstance(value, kind) or (kind is int and type(value) is bool):
        raise SaveFileError(f"{what} in the file is {value!r:.80}")
    return value


def named_tuple(kind: Any, name: str = "") -> Word:
    def join(*parts: Any) -> Any:
        if len(parts) != len(kind._fields):
            raise SaveFileError(f"a {kind.__name__} has {len(kind._fields)} parts; the file has {len(parts)}")
        return kind(*parts)

    return Word(name or kind.__name__, kind, tuple, join)


def data_class(kind: Any) -> Word:
    names = kind.__match_args__

    def join(*parts: Any) -> Any:
        if len(parts) != len(names):
            raise SaveFileError(f"a {kind.__name__} has {len(names)} parts; the file has {len(parts)}")
        return kind(*parts)

    return Word(kind.__name__, kind, lambda value: tuple([getattr(value, name) for name in names]), join)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return what a dtype is called in files."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        raise SaveError(f"a number or array of dtype {dtype} cannot be saved; unspool does not have it")
    return name


def memory_order(array: Any) -> tuple[int, ...]:
    """Return the axes of an array, outermost in memory first."""
    return memory_of(array)[1]
