"""What the array API standard's inspection functions tell of this namespace: devices, data types, what it can do."""

from __future__ import annotations

from typing import Any

from unspool._devices import CPU, check_device
from unspool._dtypes import DType
from unspool._questions import default_dtypes, dtypes_of_kind


class NamespaceInfo:
    """Answers of the array API standard's inspection functions; `unspool.__array_namespace_info__` returns one.

    Examples
    --------
    >>> import unspool as us
    >>> info = us.__array_namespace_info__()
    >>> info.default_device(), info.default_dtypes()["real floating"]
    ('cpu', dtype('float64'))
    """

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Return which of the standard's optional features are supported."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the name of the device that values live on."""
        return CPU

    def devices(self) -> tuple[str, ...]:
        """Return the names of all devices."""
        return (CPU,)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the data types that values have if none is asked for."""
        check_device(device)
        return default_dtypes()

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """Return data types by name, all or those of a kind as for `unspool.isdtype`."""
        check_device(device)
        return dtypes_of_kind(kind)


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 - the standard's name
    """Return what the array API standard's inspection functions tell of this namespace.

    Examples
    --------
    >>> import unspool as us
    >>> us.__array_namespace_info__().devices()
    ('cpu',)
    """
    return NamespaceInfo()
