"""Elements of SVG and HTML as text, everything escaped, and scales and ticks for charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: Any) -> str:
    """Return text that means itself in HTML, also inside of an attribute.

    Examples
    --------
    >>> escape('<b "x">')
    '&lt;b &quot;x&quot;&gt;'
    """
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def element(name: str, *content: str, **attributes: Any) -> str:
    """Return an element; its content is markup already, its attributes are not.

    A trailing underscore is left out of the name of an attribute and others become hyphens. What is None is left out.

    Examples
    --------
    >>> element("a", "more", href="?a&b", class_="x")
    '<a href="?a&amp;b" class="x">more</a>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def text(x: float, y: float, words: Any, **attributes: Any) -> str:
    """Return words at a place in a picture."""
    return element("text", escape(words), x=x, y=y, **attributes)


def _short(value: Any) -> Any:
    """Return a coordinate with as many digits as can be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) and math.isfinite(value) else value


# --- numbers ---------------------------------------------------------------------------------------------------------


def number(value: Any, digits: int = 6) -> str:
    """Return a number as people write it.

    Examples
    --------
    >>> number(0.000012345678), number(12.5), number(None), number(1234567)
    ('1.23457e-05', '12.5', '–', '1,234,567')
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """Return a time as people write it.

    Examples
    --------
    >>> seconds(0.0000125), seconds(0.25), seconds(83.0)
    ('12.5 µs', '250 ms', '83 s')
    """
    if value is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def power_of_ten(exponent: int) -> str:
    """Return a power of ten as a tick of a logarithmic axis says it.

    Examples
    --------
    >>> power_of_ten(-3), power_of_ten(0), power_of_ten(12)
    ('10⁻³', '1', '10¹²')
    """
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(_SUPERSCRIPTS))


# --- scales ----------------------------------------------------------------------------------------------------------


class Scale:
    """Maps numbers to places along an axis.

    Parameters
    ----------
    low, high : float
        The numbers at its ends.
    begin, end : float
        The places of those.
    log : bool
        Whether it is logarithmic.
    """

    def __init__(self, low: float, high: float, begin: float, end: float, *, log: bool = False) -> None:
        if log:
            low, high = math.log10(low), math.log10(high)
        if not high > low:
            pad = abs(low) / 2 or 0.5
            low, high = low - pad, high + pad
        self.low, self.high, self.begin, self.end, self.log = low, high, begin, end, log

    def __call__(self, value: float) -> float:
        """Return the place of a number."""
        if self.log:
            value = math.log10(value)
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self, most: int = 5, *, whole: bool = False) -> list[tuple[float, str]]:
        """Return numbers to mark and what to write there; only ``whole`` ones where others mean nothing."""
        if not self.log:
            step = nice_step((self.high - self.low) / most)
            step = max(step, 1.0) if whole else step
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            digits = max(0, -math.floor(math.log10(step) + 1e-9))
            return [(i * step, _linear(i * step, digits)) for i in range(first, last + 1)]
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        stride = max(1, math.ceil((last - first + 1) / most))
        found = [(10.0**e, power_of_ten(e)) for e in range(first, last + 1) if (e - first) % stride == 0]
        if len(found) > 1:
            return found
        values = [10 ** (self.low + (self.high - self.low) * i / 3) for i in range(4)]
        return [(value, f"{value:.3g}") for value in values]


def nice_step(rough: float) -> float:
    """Return the next number that is 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> nice_step(0.3), nice_step(7.0), nice_step(18.0)
    (0.5, 10.0, 20.0)
    """
    exponent = math.floor(math.log10(rough))
    for factor in (1, 2, 5, 10):
        if factor * 10.0**exponent >= rough * (1 - 1e-12):
            return factor * 10.0**exponent
    raise AssertionError


def _linear(value: float, digits: int) -> str:
    if digits > 6 or abs(value) >= 1e7:
        return f"{value:.3g}"
    return f"{value:.{digits}f}"


def can_be_logarithmic(values: Sequence[float]) -> bool:
    """Whether numbers are best seen on a logarithmic axis: positive, and over two powers of ten."""
    shown = [value for value in values if math.isfinite(value)]
    return bool(shown) and min(shown) > 0 and max(shown) / min(shown) >= 100
