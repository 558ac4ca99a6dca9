"""Symbolic sizes: a small normalised integer algebra.

The one idea: a size is a polynomial with integer coefficients over *atoms*, where an atom is a named size or an opaque
``//``, ``max`` or ``min`` of sizes. Polynomials have one normal form, so equal sizes compare equal (``2*n == n + n``).
Every named size is at least 0. A result without atoms is a plain ``int``: concrete shapes never meet a `Dim`.

This module knows nothing of tensors.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, Union

from unspool.errors import ShapeError, UnboundSizeError, UnknownSizeError

Size: TypeAlias = Union[int, "Dim"]
Shape: TypeAlias = tuple[Size, ...]

# An atom is ("size", name) or (operator, left, right) with operator one of "//", "max", "min".
_Atom: TypeAlias = tuple[object, ...]
_Monomial: TypeAlias = tuple[_Atom, ...]
_Terms: TypeAlias = dict[_Monomial, int]

_PLAIN: _Monomial = ()

# Bounds of expressions with more maxima and minima than this are not refined by looking at both cases of each.
_MAX_CASES = 4

_OWN_FILES = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Dim:
    """A symbolic size, made by `unspool.dims` and by arithmetic on sizes.

    Supports ``+ - * // %`` with other sizes and ints, and `maximum` / `minimum`. ``==`` is true when two sizes are
    equal for every binding. `equals` and `less` answer true, false or unknown (``None``); ``<`` and its kin raise
    `UnknownSizeError` where the answer is unknown.

    Examples
    --------
    >>> import unspool as us
    >>> n, k = us.dims("n k")
    >>> 2 * n == n + n
    True
    >>> (n + 1).equals(n), n.equals(k)
    (False, None)
    >>> (n * k + k) // k
    n + 1
    """

    __slots__ = ("_hash", "_terms")

    def __init__(self, terms: Iterable[tuple[_Monomial, int]]) -> None:
        self._terms = tuple(sorted(terms, key=_term_order))
        self._hash = hash(self._terms)

    # -- identity --

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Dim], tuple[Any, ...]]:
        return Dim, (self._terms,)  # hashes of strings differ from process to process

    def __eq__(self, other: object) -> bool:
        if self is other or (type(other) is Dim and self._hash == other._hash and self._terms == other._terms):
            return True
        if self._is_traced() and isinstance(other, (int, Dim)):
            self._refuse_to_guess(other, sys._getframe(1).f_code.co_filename)
        return False

    def _is_traced(self) -> bool:
        """Whether it stands for the size of an argument of a traced function; no user can make a name like that."""
        return any(not name.isidentifier() for name in self.names())

    def _refuse_to_guess(self, other: Size, filename: str) -> None:
        """Raise if a traced function asks whether sizes are equal and that depends on the arguments.

        Elsewhere an unknown size is unequal to every number, which is what graphs are interned by. In a traced function
        the answer would decide which branch is recorded, for all sizes. Sizes 0 and 1 are never symbols there, and two
        symbols never stand for one number.
        """
        if filename.startswith(_OWN_FILES) or (type(other) is int and other < 2):
            return
        if type(other) is Dim and self._is_symbol() and other._is_symbol():
            return
        self._decided(self.equals(other), "==", other)

    def _is_symbol(self) -> bool:
        return len(self._terms) == 1 and str(self) in self.names()

    def equals(self, other: Size) -> bool | None:
        """Whether the two sizes are equal: true, false, or ``None`` when it depends on the binding."""
        difference = self - other
        low, high = _bounds(difference)
        if low == high == 0:
            return True
        return False if low > 0 or high < 0 or _never_zero(difference) else None

    def less(self, other: Size) -> bool | None:
        """Whether this size is smaller: true, false, or ``None`` when it depends on the binding."""
        return _less(self, other)

    def _decided(self, answer: bool | None, symbol: str, other: object) -> bool:
        if answer is None:
            raise UnknownSizeError(f"whether {self} {symbol} {other} depends on sizes that are not bound yet")
        return answer

    def __lt__(self, other: Size) -> bool:
        return self._decided(self.less(other), "<", other)

    def __le__(self, other: Size) -> bool:
        return self._decided(_negate(_less(other, self)), "<=", other)

    def __gt__(self, other: Size) -> bool:
        return self._decided(_less(other, self), ">", other)

    def __ge__(self, other: Size) -> bool:
        return self._decided(_negate(self.less(other)), ">=", other)

    def __bool__(self) -> bool:
        return not self._decided(self.equals(0), "==", 0)

    def __index__(self) -> int:
        raise UnknownSizeError(f"the size {self} is symbolic: it has no number before a placeholder binds it")

    # -- arithmetic --

    def __add__(self, other: Size) -> Size:
        if (size := _as_size(other)) is None:
            return NotImplemented
        total: _Terms = dict(self._terms)
        for monomial, coefficient in _terms(size):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _from_terms(total)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else self + size * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        if (size := _as_size(other)) is None:
            return NotImplemented
        product: _Terms = {}
        for left, a in self._terms:
            for right, b in _terms(size):
                monomial = tuple(sorted(left + right, key=str))
                product[monomial] = product.get(monomial, 0) + a * b
        return _from_terms(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else _floordiv(self, size)

    def __rfloordiv__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else _floordiv(size, self)

    def __mod__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else self - size * _floordiv(self, size)

    def __rmod__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else size - self * _floordiv(size, self)

    # -- use --

    def names(self) -> set[str]:
        """Return the names of the sizes that occur in this expression."""
        return {name for monomial, _ in self._terms for atom in monomial for name in _atom_names(atom)}

    def bind(self, sizes: Mapping[str, int]) -> int:
        """Return the number this expression has when its names have the given sizes."""
        return sum(c * math.prod(_bind_atom(atom, sizes) for atom in monomial) for monomial, c in self._terms)

    def __repr__(self) -> str:
        text = ""
        for monomial, coefficient in sorted(self._terms, key=lambda term: (not term[0], str(term[0]))):
            factors = [_atom_text(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} {'*'.join(factors)}" if text else ("-" if coefficient < 0 else "") + "*".join(factors)
        return text


def dims(names: str) -> tuple[Dim, ...] | Dim:
    """Make symbolic sizes from a string of names.

    Parameters
    ----------
    names : str
        Names separated by spaces or commas. The same name is the same size wherever it is made.

    Returns
    -------
    Dim or tuple of Dim
        One `Dim` for one name, a tuple for several.

    Examples
    --------
    >>> import unspool as us
    >>> n, k = us.dims("n k")
    >>> us.placeholder((n, k), name="X").shape
    (n, k)
    """
    given: object = names
    words = given.replace(",", " ").split() if isinstance(given, str) else []
    if not words or not all(word.isidentifier() for word in words):
        raise ShapeError(f"dims() takes names such as 'n k', got {names!r}")
    made = tuple(Dim([((("size", word),), 1)]) for word in words)
    return made if len(made) > 1 else made[0]


def maximum(left: Size, right: Size) -> Size:
    """Return the larger of two sizes, as a number where that is known."""
    return _extremum("max", left, right)


def minimum(left: Size, right: Size) -> Size:
    """Return the smaller of two sizes, as a number where that is known."""
    return _extremum("min", left, right)


def equal(left: Size, right: Size) -> bool | None:
    """Whether two sizes are equal: true, false, or ``None`` when it depends on the binding."""
    if isinstance(left, Dim):
        return left.equals(right)
    return right.equals(left) if isinstance(right, Dim) else bool(left == right)


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def is_concrete(shape: Shape) -> bool:
    """Whether a shape holds numbers only."""
    return Dim not in map(type, shape)


def bind(size: Size, sizes: Mapping[str, int]) -> int:
    """Return the number a size has when names have the given sizes."""
    return size.bind(sizes) if isinstance(size, Dim) else size


def solve(expression: Dim, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """Find the one unbound name of an expression that is linear in it; ``None`` if there is no such name.

    Raises `UnknownSizeError` if no whole number of at least 0 gives ``value``.
    """
    unbound = expression.names() - sizes.keys()
    if len(unbound) != 1:
        return None
    name = unbound.pop()
    # Linear: the name occurs in no monomial twice and in no `//`, `max` or `min`.
    wanted = ("size", name)
    if any(m.count(wanted) > 1 or any(a != wanted and name in _atom_names(a) for a in m) for m, _ in expression._terms):
        return None
    at_zero = expression.bind({**sizes, name: 0})
    slope = expression.bind({**sizes, name: 1}) - at_zero
    if slope == 0:
        return None
    solution, remainder = divmod(value - at_zero, slope)
    if remainder or solution < 0:
        raise UnknownSizeError(f"no size {name} makes {expression} equal to {value}")
    return name, solution


# --- the normal form -------------------------------------------------------------------------------------------------


def _term_order(term: tuple[_Monomial, int]) -> str:
    return str(term[0])


def _terms(size: Size) -> Iterator[tuple[_Monomial, int]]:
    if isinstance(size, Dim):
        yield from size._terms
    elif size:
        yield _PLAIN, size


def _from_terms(terms: _Terms) -> Size:
    kept = [(monomial, c) for monomial, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == _PLAIN:
        return kept[0][1]
    return Dim(kept)


def _atom(kind: str, left: Size, right: Size) -> Size:
    return Dim([(((kind, left, right),), 1)])


def _as_size(value: object) -> Size | None:
    """Return an operand as a size (NumPy integers become ints), or ``None`` if it is something else."""
    if isinstance(value, (int, Dim)):
        return value
    try:
        return value.__index__()  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, TypeError):
        return None


def _floordiv(left: Size, right: Size) -> Size:
    if right == 0:
        raise ShapeError(f"the size {left} // 0 does not exist")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 1:
        return left
    # What divides exactly moves out of the division: (3n + 3) // 2 is n + 1 + (n + 1) // 2, (n*k + k) // k is n + 1.
    whole: Size = 0
    rest: Size = 0
    for monomial, coefficient in _terms(left):
        quotient, remainder = _divide_term(monomial, coefficient, right)
        whole = whole + quotient
        rest = rest + remainder
    if rest == 0:
        return whole
    low, high = _bounds(rest)
    if low >= 0 and high < _bounds(right)[0]:
        return whole
    return whole + _atom("//", rest, right)


def _divide_term(monomial: _Monomial, coefficient: int, divisor: Size) -> tuple[Size, Size]:
    """Return quotient and remainder of one term; what a divisor of one term does not divide is all remainder."""
    undivided = _from_terms({monomial: coefficient})
    terms = list(_terms(divisor))
    if len(terms) != 1:
        return 0, undivided
    factors, scale = terms[0]
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return 0, undivided
        left.remove(factor)
    quotient, remainder = divmod(coefficient, scale)
    return _from_terms({tuple(left): quotient}), _from_terms({monomial: remainder})


def _extremum(kind: str, left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right) if kind == "max" else min(left, right)
    low, high = _bounds(left - right)
    if low >= 0:
        return left if kind == "max" else right
    if high <= 0:
        return right if kind == "max" else left
    first, second = sorted((left, right), key=str)
    return _atom(kind, first, second)


def _never_zero(difference: Size) -> bool:
    """Whether an expression cannot be 0 because of divisibility (2n - 1 is odd)."""
    terms = dict(_terms(difference))
    constant = terms.pop(_PLAIN, 0)
    return bool(terms) and constant % math.gcd(*terms.values()) != 0


def _bounds(size: Size) -> tuple[float, float]:
    """Return an interval that holds the size for every binding; a named size is any number from 0 on."""
    if isinstance(size, int):
        return size, size
    choices = {atom for monomial, _ in size._terms for atom in monomial if atom[0] in ("max", "min")}
    if 0 < len(choices) <= _MAX_CASES:
        # A maximum is one of its two operands, and so is the rest of the expression, for each of the two.
        atom = min(choices, key=str)
        cases = [_bounds(_replace(size, atom, operand)) for operand in atom[1:]]  # type: ignore[arg-type]
        lows, highs = [low for low, _ in cases], [high for _, high in cases]
        # With a coefficient that has a sign, the expression lies on one side of both cases.
        side = _side(size, atom)
        return (max(lows) if side > 0 else min(lows)), (min(highs) if side < 0 else max(highs))
    low: float = 0
    high: float = 0
    for monomial, coefficient in size._terms:
        ends: tuple[float, float] = (coefficient, coefficient)
        for factor in monomial:
            ends = _interval_product(ends, _atom_bounds(factor))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _replace(size: Dim, atom: _Atom, operand: Size) -> Size:
    """Return an expression with one atom replaced by a size."""
    total: Size = 0
    for monomial, coefficient in size._terms:
        term = _from_terms({tuple(a for a in monomial if a != atom): coefficient})
        for _ in range(monomial.count(atom)):
            term = term * operand
        total = total + term
    return total


def _side(size: Dim, atom: _Atom) -> int:
    """Return 1 if a size is never below what it is with either operand in place of an atom, -1 if never above, or 0."""
    coefficients = [c for monomial, c in size._terms if atom in monomial]
    if len(coefficients) != 1 or (atom,) not in [monomial for monomial, _ in size._terms]:
        return 0
    return (1 if coefficients[0] > 0 else -1) * (1 if atom[0] == "max" else -1)


def _interval_product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    products = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(products), max(products)


def _atom_bounds(atom: _Atom) -> tuple[float, float]:
    if atom[0] == "size":
        return 0, math.inf
    kind, left, right = atom
    (a, b), (c, d) = _bounds(left), _bounds(right)  # type: ignore[arg-type]
    if kind == "max":
        return max(a, c), max(b, d)
    if kind == "min":
        return min(a, c), min(b, d)
    if c < 1:
        return -math.inf, math.inf
    return _quotient(a, d if a >= 0 else c), _quotient(b, c if b >= 0 else d)


def _quotient(left: float, right: float) -> float:
    """Return left // right for a right of at least 1, where both may be infinite."""
    if math.isinf(left):
        return left
    if math.isinf(right):
        return 0 if left >= 0 else -1
    return left // right


def _bind_atom(atom: _Atom, sizes: Mapping[str, int]) -> int:
    if atom[0] == "size":
        name = str(atom[1])
        if name not in sizes:
            raise UnboundSizeError(f"no bound placeholder determines the size {name}")
        return sizes[name]
    kind, left, right = atom
    a, b = bind(left, sizes), bind(right, sizes)  # type: ignore[arg-type]
    if kind == "//":
        if b == 0:
            raise ShapeError(
                f"the size ({left}) // ({right}) does not exist: it is {a} // 0 for the sizes that were bound"
            )
        return a // b
    return max(a, b) if kind == "max" else min(a, b)


def _atom_names(atom: _Atom) -> set[str]:
    """Return the names of the sizes that occur in an atom."""
    if atom[0] == "size":
        return {str(atom[1])}
    return {name for part in atom[1:] if isinstance(part, Dim) for name in part.names()}


def _atom_text(atom: _Atom) -> str:
    kind = atom[0]
    if kind == "size":
        return str(atom[1])
    if kind == "//":
        return f"(({atom[1]})//({atom[2]}))" if isinstance(atom[1], Dim) else f"({atom[1]}//({atom[2]}))"
    return f"{kind}({atom[1]}, {atom[2]})"


def _less(left: Size, right: Size) -> bool | None:
    low, high = _bounds(right - left)
    if low > 0:
        return True
    return False if high <= 0 else None


def _negate(answer: bool | None) -> bool | None:
    return None if answer is None else not answer
