"""``numpy.lib``, as far as other libraries look there for functions of arrays: `stride_tricks`."""

from unspool.lib import stride_tricks

__all__ = ["stride_tricks"]


def __dir__() -> list[str]:
    return sorted(__all__)
