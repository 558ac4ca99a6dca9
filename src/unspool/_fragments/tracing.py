"""Tracing: run a function once on stand-ins for its arguments, and describe what it did as a fragment.

The stand-ins are placeholders with symbolic sizes, and `WeakNumber`s for Python numbers. A function may insist on
knowing one of them: ``range(n)``, ``if n > 3``, ``float(s)``. Then it is run again with that one given, and the trace
says which one and which line it was. If the error does not tell which symbol was to blame, everything is given; if that
works, symbols come back one by one as far as the function lets them. If it does not, the error is that of plain code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool import _graph
from unspool import _trees as trees
from unspool._dims import Dim, is_concrete
from unspool._fragments.arguments import TENSOR, Arguments, Parameters
from unspool._fragments.asking import asks_for_a_value, users_line
from unspool._fragments.captured_state import Surroundings
from unspool._fragments.fragment import Fragment, Origin, capture, dependent_nodes
from unspool._fragments.show import show
from unspool._fragments.watching import Watch, unseen_tensors
from unspool._fragments.weak_numbers import DTYPES, WeakNumber
from unspool._graph import Node, describe, source_of
from unspool._html import printed_as_html
from unspool._ops.leaf import placeholder
from unspool.errors import UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Symbols are called n₀, n₁, … for sizes and s₀, s₁, … for numbers. No size that a user can make has such a name.
_DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SYMBOL = re.compile("[ns][₀₁₂₃₄₅₆₇₈₉]+")


class Slot(NamedTuple):
    """A value of a trace: its shape, with symbols, and dtype (tuples of them for an op with several outputs)."""

    shape: Any
    dtype: Any


class Given(NamedTuple):
    """A symbol that is no symbol in a trace: what it would be, its number, and the reason, with the user's line."""

    symbol: str
    meaning: str
    number: Any
    reason: str


@dataclass(frozen=True, eq=False)
class Trace:
    """What a function does to arguments of one structure; ``print`` shows it.

    Attributes
    ----------
    name : str
        Of the function.
    fragment : Fragment
        The body.
    slots : tuple of Slot
        Shape and dtype of every slot of the fragment.
    leaf_names : tuple of str
        What the leaves of the arguments are called.
    inputs : tuple of str
        What the fragment's inputs are called, those that are arguments.
    used : tuple of int
        Which operands (tensors and arrays, then numbers) these are.
    closed_over : tuple of Tensor
        The other inputs: tensors that the function found outside, or made of such tensors alone.
    returns : list
        What each leaf of the result is: ("result", i), ("leaf", i) for an argument, ("size", dim) or ("value", v).
    structure : treedef
        Of the result.
    given : tuple of Given
        What the function insisted on.
    origins : tuple of (code, offset)
        Where each instruction was recorded.
    surroundings : Surroundings
    """

    name: str
    fragment: Fragment
    slots: tuple[Slot, ...]
    leaf_names: tuple[str, ...]
    inputs: tuple[str, ...]
    used: tuple[int, ...]
    closed_over: tuple[Tensor, ...]
    returns: list[tuple[str, Any]]
    structure: Any
    given: tuple[Given, ...]
    origins: tuple[Origin, ...]
    surroundings: Surroundings

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        return show(self)

    def __repr__(self) -> str:
        return f"<trace of {self.name}: {len(self.fragment)} instructions>"

    @property
    def is_open(self) -> bool:
        """Whether it reads tensors with symbolic sizes that are none of its arguments."""
        return not all(is_concrete(node.shape) for node in self.closed_over)


class Symbols:
    """The symbols that a trace for some arguments may use, and the numbers that they stand for at this call.

    Attributes
    ----------
    leaf_names : list of str
        What to call the leaves of the arguments.
    pattern : Pattern
        Shapes of tensors and arrays.
    sizes, numbers : dict
        Numbers by symbol.
    positions : dict
        Which leaf a symbol for a number stands for.
    meanings : dict
        What to call what a symbol stands for.
    """

    def __init__(self, arguments: Arguments, parameters: Parameters) -> None:
        self.leaf_names = parameters.leaf_names(arguments.structure)
        self.pattern, sizes = arguments.pattern()
        self.sizes = {_symbol("n", i): size for i, size in enumerate(sizes)}
        self.positions = {_symbol("s", i): position for i, position in enumerate(arguments.numbers())}
        self.numbers = {name: arguments.leaves[position] for name, position in self.positions.items()}
        self.meanings = {name: self.leaf_names[position] for name, position in self.positions.items()}
        tensors = [name for name, kind in zip(self.leaf_names, arguments.kinds, strict=True) if kind == TENSOR]
        for name, shape in zip(tensors, self.pattern, strict=True):
            for axis, size in enumerate(shape):
                if size < 0:
                    symbol, place = _symbol("n", ~size), f"{name}.shape[{axis}]"
                    self.meanings[symbol] = f"{self.meanings[symbol]} = {place}" if symbol in self.meanings else place

    def number(self, symbol: str) -> Any:
        """Return the number that a symbol stands for."""
        return self.sizes[symbol] if symbol in self.sizes else self.numbers[symbol]

    def values_of(self, symbols: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return symbols with their numbers, in order, as part of a key: 0.0 and -0.0 are two numbers."""
        return tuple([(name, repr(self.number(name))) for name in sorted(symbols)])


def _symbol(letter: str, number: int) -> str:
    return letter + str(number).translate(_DIGITS)


# --- attempts --------------------------------------------------------------------------------------------------------


class Tracer:
    """Traces a function for one call's arguments, with as many symbols as the function lets there be.

    What is run is ``run``: the function, or one that does the same and marks what it made.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: Arguments, symbols: Symbols, run: Callable[..., Any]
    ) -> None:
        self._function = function
        self._run = run
        self._arguments = arguments
        self._symbols = symbols
        self._reasons: dict[str, str] = {}

    def trace(self, known: Mapping[str, str]) -> Trace:
        """Return a trace; ``known`` maps symbols whose numbers are given from the start to the reason for it."""
        self._reasons = dict(known)
        symbols = self._symbols
        trace = self._with_most([name for name in (*symbols.sizes, *symbols.numbers) if name not in known])
        given = [Given(s, symbols.meanings[s], symbols.number(s), self._reasons[s]) for s in sorted(self._reasons)]
        return replace(trace, given=tuple(given))

    def _with_most(self, free: list[str]) -> Trace:
        """Trace with all symbols free but those that errors ask for by name."""
        while True:
            try:
                return self._attempt(free)
            except Exception as error:
                wanted = [name for name in free if name in _symbols_in(error)]
                if not free:
                    raise self._explained(error) from error.__cause__
                self._note(wanted or free, error)
                if not wanted:
                    return self._with_few(free)
                free = [name for name in free if name not in wanted]

    def _with_few(self, free: Sequence[str]) -> Trace:
        """Trace with everything given, then find out which symbols can stay."""
        try:
            best = self._attempt([])
        except Exception as error:
            raise self._explained(error) from error.__cause__
        kept: list[str] = []
        for name in free:
            try:
                best = self._attempt([*kept, name])
            except Exception as error:
                self._note([name], error)
            else:
                kept.append(name)
                del self._reasons[name]
        return best

    def _note(self, names: Sequence[str], error: Exception) -> None:
        reason = f"asked for at {users_line(error.__traceback__)}"
        self._reasons.update(dict.fromkeys(names, reason))

    def _explained(self, error: Exception) -> Exception:
        if not isinstance(error, UnboundPlaceholderError):
            return error
        return asks_for_a_value(
            error, "a fragment", "iterate with us.unstack, or move what looks at values out of the fragment"
        )

    def _attempt(self, free: Sequence[str], *, again: bool = False) -> Trace:
        """Run the function with the given symbols free and all others given."""
        arguments = self._arguments
        leaves, stand_ins = self._stand_ins(set(free))
        args, kwargs = trees.unflatten(arguments.structure, leaves)
        args = list(args)
        for place, value in arguments.static:
            if isinstance(place, int):
                args[place] = value
            else:
                kwargs[place] = value
        start = _graph.next_id()
        with Watch(self._function, arguments.objects()) as watch:
            returned = self._run(*args, **kwargs)
        surroundings = watch.surroundings([node for _, node in stand_ins], again=again)
        if surroundings is None:
            return self._attempt(free, again=True)
        trace = _describe(_name_of(self._function), self._symbols.leaf_names, leaves, stand_ins, returned, surroundings)
        outside = [content for kind, content in trace.returns if kind == "value" and isinstance(content, Node)]
        for node in unseen_tensors([*trace.closed_over, *outside], surroundings, start):
            surroundings.unseen.append(
                f"{describe(node)}, made at {source_of(node)}, is found at no place that is known"
            )
        return trace

    def _stand_ins(self, free: set[str]) -> tuple[list[Any], list[tuple[int, Tensor]]]:
        """Return the leaves to call the function with, and the placeholders among them with their operand numbers."""
        names = self._symbols.leaf_names
        leaves = list(self._arguments.leaves)
        found: list[tuple[int, Tensor]] = []
        tensors = iter(zip(self._arguments.tensors, self._symbols.pattern, strict=True))
        for i, kind in enumerate(self._arguments.kinds):
            if kind == TENSOR:
                tensor, codes = next(tensors)
                leaves[i] = placeholder(tuple([self._size(code, free) for code in codes]), tensor.dtype, names[i])
                found.append((len(found), leaves[i]))
        first = len(found)
        for operand, (name, i) in enumerate(self._symbols.positions.items(), start=first):
            if name in free:
                kind = self._arguments.kinds[i]
                stand_in = placeholder((), DTYPES[kind], names[i])
                leaves[i] = WeakNumber(stand_in, kind, name)
                found.append((operand, stand_in))
        return leaves, found

    def _size(self, code: int, free: set[str]) -> Any:
        if code >= 0:
            return code
        name = _symbol("n", ~code)
        return Dim([((("size", name),), 1)]) if name in free else self._symbols.sizes[name]


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _symbols_in(error: BaseException) -> set[str]:
    """Return the symbols that an error, or one that led to it, speaks of."""
    found: set[str] = set()
    current: BaseException | None = error
    while current is not None:
        found.update(_SYMBOL.findall(str(current)))
        current = current.__cause__ or current.__context__
    return found


# --- from nodes to a trace -------------------------------------------------------------------------------------------


def _describe(
    name: str,
    leaf_names: Sequence[str],
    leaves: Sequence[Any],
    stand_ins: Sequence[tuple[int, Tensor]],
    returned: Any,
    surroundings: Surroundings,
) -> Trace:
    out, structure = trees.flatten(returned)
    starts: set[Any] = {node.id for _, node in stand_ins}
    order = dependent_nodes([node for node in out if isinstance(node, Node)], starts)
    computed = {node.id: node for node in order}
    results = list({node.id: node for node in out if isinstance(node, Node) and node.id in computed}.values())
    used = _needed(stand_ins, order)
    captured = capture([node for _, node in used], results, [node for _, node in stand_ins], keep_residuals=True)
    closed_over = captured.inputs[len(used) :]
    places: dict[float, tuple[str, int]] = {node.id: ("result", i) for i, node in enumerate(results)}
    places |= {
        (leaf.tensor if isinstance(leaf, WeakNumber) else leaf).id: ("leaf", i)
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, (Node, WeakNumber))
    }
    return Trace(
        name,
        captured.fragment,
        tuple([Slot(node.shape, node.dtype) for node in captured.nodes]),
        tuple(leaf_names),
        tuple([node.name or "" for _, node in used]),
        tuple([i for i, _ in used]),
        tuple(closed_over),  # type: ignore[arg-type]
        [_returned(leaf, places) for leaf in out],
        structure,
        (),
        tuple([(node.code, node.lasti) for node in captured.nodes[len(captured.inputs) :]]),
        surroundings,
    )


def _returned(leaf: Any, places: Mapping[float, tuple[str, int]]) -> tuple[str, Any]:
    """Return where a leaf of the result comes from."""
    if isinstance(leaf, WeakNumber):
        place = places.get(leaf.tensor.id)
        return place if place is not None else leaf._insist()
    if isinstance(leaf, Dim):
        return "size", leaf
    if isinstance(leaf, Node):
        return places.get(leaf.id, ("value", leaf))
    return "value", leaf


def _needed(stand_ins: Sequence[tuple[int, Tensor]], order: Sequence[Node]) -> list[tuple[int, Tensor]]:
    """Return the stand-ins that the body reads; all of them if it knows a size from another one."""
    read = {operand.id for node in order for operand in node.inputs}
    used = [pair for pair in stand_ins if pair[1].id in read]
    return used if _size_names(used) == _size_names(stand_ins) else list(stand_ins)


def _size_names(stand_ins: Sequence[tuple[int, Tensor]]) -> set[str]:
    return {name for _, node in stand_ins for size in node.shape if isinstance(size, Dim) for name in size.names()}
