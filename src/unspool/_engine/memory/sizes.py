"""Amounts of memory as people write them: "2GB", "1.5GiB", a number of bytes, a share of what there is.

One grammar for every place that takes a budget, and one way to print bytes. Arithmetic on text is exact: 1.1GB is
1,100,000,000 bytes, not what is nearest to it in binary.
"""

from __future__ import annotations

import re
from numbers import Integral, Real
from typing import NoReturn

from unspool._engine.memory.process_limits import available_bytes
from unspool.errors import ArgumentError

_PREFIXES = "kmgt"

# Bytes in a unit, by its name in lower case: thousands for kB, powers of two for KiB.
UNITS = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
}

# Thirty digits are more than any memory has; what is longer is a mistake, not an amount.
_AMOUNT = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)\s*", re.IGNORECASE)

_ACCEPTED = (
    'a number of bytes such as 4096, a text such as "2GB", "1.5GiB" or "300 MB" (units B, kB, MB, GB, TB, KiB, MiB, '
    "GiB, TiB), a float above 0 and up to 1 for that share of the available memory, or None for half of it"
)


def parse_bytes(value: str | int | float | None) -> int:
    """Return how many bytes a budget means.

    Parameters
    ----------
    value : str, int, float or None
        A text with a unit ("2GB" is 2·10⁹ bytes, "2GiB" is 2·2³⁰) or without one (bytes); an integer number of bytes;
        a float above 0 and up to 1, the share of the memory available to the process; None is half of that memory.

    Returns
    -------
    int
        At least 1. Parts of a byte are dropped.

    Raises
    ------
    ArgumentError
        For everything else.

    Examples
    --------
    >>> parse_bytes("2GB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (2000000000, 1610612736, 4096)
    >>> parse_bytes(1.0) == available_bytes()
    True
    """
    if isinstance(value, str):
        return _parse_text(value)
    if value is None:
        return _share(0.5)
    # True is an integer to Python, but nobody means one byte by it.
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value) if value > 0 else _refuse(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return _share(float(value)) if 0 < value <= 1 else _refuse(value)
    return _refuse(value)


def format_bytes(count: float) -> str:
    """Return an amount of memory with three digits and a unit of thousands.

    Examples
    --------
    >>> format_bytes(1_500_000_000), format_bytes(12_345), format_bytes(999)
    ('1.50 GB', '12.3 kB', '999 B')
    """
    if abs(count) < 1000:
        return f"{count:.0f} B"
    scaled = count / 1000
    for unit in ("kB", "MB", "GB"):
        # What would print as 1000 belongs to the next unit.
        if abs(scaled) < 999.5:
            return f"{_three_digits(scaled)} {unit}"
        scaled /= 1000
    return f"{_three_digits(scaled)} TB"


def _parse_text(text: str) -> int:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        _refuse(text)
    number, unit = found[1], found[2].lower()
    # "0.5" without a unit may be meant as a share or as bytes of something: ask instead of guessing.
    if unit not in UNITS and (unit or "." in number):
        _refuse(text)
    from fractions import Fraction

    return int(Fraction(number) * UNITS.get(unit, 1)) or _refuse(text)


def _share(fraction: float) -> int:
    return max(1, int(fraction * available_bytes()))


def _three_digits(number: float) -> str:
    size = abs(number)
    return f"{number:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def _refuse(value: object) -> NoReturn:
    raise ArgumentError(f"{value!r} is not an amount of memory; give {_ACCEPTED}")
