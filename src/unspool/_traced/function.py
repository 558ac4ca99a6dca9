"""``@unspool.fragment``: a function that is traced once per structure of its arguments, then placed as one call.

A call finds its trace by the structure and dtypes of the arguments and the pattern of their sizes (`arguments`), its
plan by the sizes themselves, and places one call node. Both are remembered together under the exact signature, so what
a repeated call costs is one look-up and the nodes it makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, overload

from unspool import _trees as trees
from unspool._dims import Dim, bind
from unspool._engine.default import default_engine
from unspool._fragments.arguments import Arguments, Parameters
from unspool._fragments.asking import check_callable
from unspool._fragments.call import Projection, make_call, output
from unspool._fragments.tracing import Symbols, Trace, Tracer
from unspool._fragments.weak_numbers import DTYPES, is_weak
from unspool._graph import Node
from unspool._ops.leaf import scalar
from unspool._tensor import Tensor
from unspool._travelling import fragment_by_name_or_function
from unspool.errors import ArgumentError, UnspoolError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan

# Traces that a function keeps, and signatures for which it remembers the plan. The oldest leave first.
MOST_TRACES = 128
MOST_SIGNATURES = 1024

_Value = TypeVar("_Value")


@overload
def fragment(function: Callable[..., Any], *, static: str | Sequence[str] = ()) -> FragmentFunction: ...


@overload
def fragment(
    function: None = None, *, static: str | Sequence[str] = ()
) -> Callable[[Callable[..., Any]], FragmentFunction]: ...


def fragment(function: Callable[..., Any] | None = None, *, static: str | Sequence[str] = ()) -> Any:
    """Turn a function of tensors into one that is traced once and then placed as a whole.

    The function runs when arguments of some structure come for the first time. What it did is kept as a fragment, for
    all sizes; every further call places one node for it instead of one per operation. Values and derivatives, of any
    order, are those of the plain function.

    Parameters
    ----------
    function : callable
        Takes and returns nested structures of tensors. Arrays and Python numbers are data as well, and a new value does
        not make it trace again. Strings, bools and other objects are part of what a trace is for, and hashable.
    static : str or sequence of str
        Names of further parameters that a trace is for, by value: an order, a number of steps.

    Returns
    -------
    FragmentFunction
        Is called like the function. ``print(f.trace(...))`` shows what was recorded.

    Notes
    -----
    Sizes of arguments are symbols in a trace. Those that are equal at the call are one symbol, and the pattern of equal
    sizes is part of what a trace is for, like sizes 0 and 1. A size, or a Python number, that the function insists on
    (``range(x.shape[0])``, ``if s > 0``) is no symbol: there is a trace for each such number, and the trace tells which
    line asked. Values of tensors cannot be asked for while tracing.

    Tensors that the function finds outside its arguments are inputs of the fragment. What the code that runs can name
    there (attributes, entries, variables, globals) is watched: if it changes, the function is traced again. A function
    that changes what it reads raises `SideEffectError`.

    Examples
    --------
    >>> import unspool as us
    >>> @us.fragment
    ... def step(A, x):
    ...     y = A @ x
    ...     return y / us.linalg.norm(y)
    >>> A = us.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> x = us.tensor([1.0, 1.0])
    >>> for _ in range(50):
    ...     x = step(A, x)
    >>> (x @ A @ x).item()
    2.0
    >>> step.traces
    1
    """
    if function is None:
        return lambda decorated: FragmentFunction(decorated, static)
    return FragmentFunction(function, static)


class FragmentFunction:
    """A function that is traced once per structure of its arguments; made by `unspool.fragment`."""

    _decorator = "fragment"
    # What a fragment around this one watches of it.
    _watched = ("_function",)

    def __init__(self, function: Callable[..., Any], static: str | Sequence[str] = ()) -> None:
        check_callable(function, f"us.{self._decorator}")
        # First: what wraps a fragment has traces of its own.
        update_wrapper(self, function)
        self._function = function
        self._parameters = Parameters(function, static)
        self._traces: _Bounded[Trace] = _Bounded(MOST_TRACES)
        # Which symbols a function insists on, and in which line, by structure.
        self._insisted: _Bounded[dict[str, str]] = _Bounded(MOST_TRACES)
        self._placements: _Bounded[Placement] = _Bounded(MOST_SIGNATURES)
        # The positions of numbers that are insisted on, by signature.
        self._numbers: _Bounded[list[int]] = _Bounded(MOST_SIGNATURES)

    def __repr__(self) -> str:
        return f"<{self._decorator} {getattr(self._function, '__qualname__', self._function)}>"

    def __reduce__(self) -> Any:
        return fragment_by_name_or_function(self, (self._function, tuple(sorted(self._parameters.static))))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundFragment(self, instance)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function: place its fragment on the arguments."""
        if not kwargs:
            signature = _flat_signature(args)
            if signature is not None:
                placement = self._placements.get(signature)
                if placement is not None and placement.surroundings.are_unchanged():
                    # Tensors make two entries each, numbers one.
                    return placement.place(args if len(signature) == 2 * len(args) else _operands(args), args)
        return self._call(args, kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Trace:
        """Return the trace for some arguments, made now if there is none. It prints as a listing.

        Examples
        --------
        >>> import unspool as us
        >>> f = us.fragment(lambda x, y: us.sum(x * y))
        >>> print(f.trace(us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])))
        fragment <lambda>
          inputs
            %0  (n₀,)  float64  x
            %1  (n₀,)  float64  y
          body
            %2  (n₀,)  float64  multiply(%0, %1)
            %3  ()     float64  sum(%2, axis=(0,), keepdims=False)
          returns %3
        """
        arguments = Arguments(self._parameters, args, kwargs)
        if arguments.is_abstract:
            raise ArgumentError("arguments with symbolic sizes are not traced: such a call runs the function as it is")
        arguments.check_key(self._parameters)
        return self._trace_for(arguments, Symbols(arguments, self._parameters))

    @property
    def traces(self) -> int:
        """How many traces are kept, 128 at most."""
        return len(self._traces)

    def clear(self) -> None:
        """Forget all traces, and the tensors and objects they hold."""
        for cache in (self._traces, self._insisted, self._placements, self._numbers):
            cache.clear()

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself: to trace it, or as part of another trace."""
        return self._function(*args, **kwargs)

    # -- the general way --

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = Arguments(self._parameters, args, kwargs)
        if arguments.is_abstract:
            return self._run(*args, **kwargs)
        try:
            placement = self._placements.get(self._signature(arguments))
        except TypeError:
            arguments.check_key(self._parameters)
            raise
        if placement is None or not placement.surroundings.are_unchanged():
            symbols = Symbols(arguments, self._parameters)
            trace, plan = self._plan_for(arguments, symbols)
            if plan is None:
                return self._run(*args, **kwargs)
            placement = Placement(trace, plan, symbols.sizes)
            insisted = [symbols.positions[given.symbol] for given in trace.given if given.symbol in symbols.numbers]
            if insisted:
                self._numbers.put(arguments.key, insisted)
            self._placements.put(self._signature(arguments), placement)
            flat = None if kwargs or arguments.static or insisted else _flat_signature(args)
            if flat is not None:
                self._placements.put(flat, placement)
        return placement.place(arguments.operands(), arguments.leaves)

    def _signature(self, arguments: Arguments) -> tuple[Any, ...]:
        """Return what a placement is remembered by: all that a plan depends on."""
        positions = self._numbers.get(arguments.key) if self._numbers else None
        if positions is None:
            return arguments.key
        return (arguments.key, *[repr(arguments.leaves[i]) for i in positions])

    def _plan_for(self, arguments: Arguments, symbols: Symbols) -> tuple[Trace, Plan | None]:
        """Return a trace and its plan; no plan if tensors with symbolic sizes, found outside, have a part in it."""
        trace = self._trace_for(arguments, symbols)
        if trace.is_open:
            return trace, None
        try:
            plan = _bound(trace, arguments)
            if _is_general(trace, plan):
                return trace, plan
        except UnspoolError:
            pass
        # A size that was derived is 1 and may broadcast, or the sizes do not fit: it is for the function to say.
        trace = self._trace_for(arguments, symbols, special=True)
        return trace, _bound(trace, arguments)

    def _trace_for(self, arguments: Arguments, symbols: Symbols, special: bool = False) -> Trace:
        """Return the trace for some arguments; a special one is for their sizes alone."""
        structure = (*arguments.key[:3], symbols.pattern, arguments.key[4])
        known = self._insisted.get(structure) or {}
        of_these_sizes = dict.fromkeys(symbols.sizes, "the general trace does not hold for it") | known
        for wanted in (of_these_sizes,) if special else (of_these_sizes, known):
            trace = self._traces.get((structure, symbols.values_of(wanted)))
            if trace is not None and trace.surroundings.are_unchanged():
                return trace
        trace = Tracer(self._function, arguments, symbols, self._run).trace(of_these_sizes if special else known)
        found = {given.symbol: given.reason for given in trace.given}
        # That a trace is special says nothing about other sizes, but a number that it insists on stays insisted on.
        learned = {name: why for name, why in found.items() if not special or name in known or name in symbols.numbers}
        self._insisted.put(structure, learned)
        self._traces.put((structure, symbols.values_of(found)), trace)
        return trace


def _flat_signature(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what a placement is remembered by for arguments that are all tensors and numbers: the short way."""
    signature: list[Any] = []
    for argument in args:
        cls = type(argument)
        if cls is Tensor or cls is Projection:
            signature += (argument.shape, argument.dtype)
        elif is_weak(argument):
            signature.append(cls)
        else:
            return None
    return tuple(signature)


def _operands(args: tuple[Any, ...]) -> list[Tensor]:
    """Return tensors, then numbers as tensors, as `Arguments.operands` does."""
    tensors: list[Any] = [argument for argument in args if isinstance(argument, Node)]
    return tensors + [scalar(argument, DTYPES[type(argument)]) for argument in args if not isinstance(argument, Node)]


class BoundFragment:
    """A `FragmentFunction` as a method of an instance, which is its first argument."""

    _watched = ("__func__", "__self__")

    def __init__(self, fragment: FragmentFunction, instance: Any) -> None:
        self.__func__ = fragment
        self.__self__ = instance
        update_wrapper(self, fragment)

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__func__.__name__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        return self.__func__(self.__self__, *args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Trace:
        """Return the trace for some arguments; see `FragmentFunction.trace`."""
        return self.__func__.trace(self.__self__, *args, **kwargs)

    @property
    def traces(self) -> int:
        """How many traces are kept, for all instances."""
        return self.__func__.traces

    def clear(self) -> None:
        """Forget all traces, of all instances."""
        self.__func__.clear()


# --- placing ---------------------------------------------------------------------------------------------------------


class Placement:
    """A trace with a plan for sizes: places the call and puts the result together."""

    __slots__ = (
        "_closed_over",
        "_form",
        "_origins",
        "_plan",
        "_results",
        "_returns",
        "_structure",
        "_used",
        "surroundings",
    )

    def __init__(self, trace: Trace, plan: Plan, sizes: dict[str, int]) -> None:
        self.surroundings = trace.surroundings
        self._plan = plan
        self._origins = trace.origins
        self._closed_over = trace.closed_over
        self._used = trace.used
        self._results = range(plan.fragment.results)
        self._structure = trace.structure
        # The sizes have numbers here.
        self._returns = [
            ("value", bind(content, sizes)) if kind == "size" else (kind, content) for kind, content in trace.returns
        ]
        self._form = _form(trace)

    def place(self, operands: Sequence[Tensor], leaves: Sequence[Any]) -> Any:
        """Place a call on operands and return what the function returns; leaves are the arguments as given."""
        used = self._used
        inputs = tuple(operands) if len(used) == len(operands) else tuple([operands[i] for i in used])
        if self._closed_over:
            inputs += self._closed_over
        if self._form is _ONE:
            return output(make_call(self._plan, inputs, self._origins), 0)
        results: list[Any] = []
        if self._results:
            call = make_call(self._plan, inputs, self._origins)
            results = [output(call, i) for i in self._results]
            if self._form is _TUPLE:
                return tuple(results)
        filled = [
            results[content] if kind == "result" else leaves[content] if kind == "leaf" else content
            for kind, content in self._returns
        ]
        return trees.unflatten(self._structure, filled)


_ONE, _TUPLE, _NESTED = "one result", "a tuple of results", "any structure"


def _form(trace: Trace) -> str:
    """Return in which of the forms that need no tree the results of a trace are returned, if in any."""
    if trace.returns == [("result", i) for i in range(trace.fragment.results)]:
        if trees.is_leaf(trace.structure):
            return _ONE
        if trace.structure == trees.flatten(tuple(range(len(trace.returns))))[1]:
            return _TUPLE
    return _NESTED


def _bound(trace: Trace, arguments: Arguments) -> Plan:
    """Return the plan of a trace for the sizes of the arguments."""
    operands = arguments.operands()
    inputs = [*[operands[i] for i in trace.used], *trace.closed_over]
    return default_engine().plans.plan_for(trace.fragment, tuple([node.shape for node in inputs]))


def _is_general(trace: Trace, plan: Plan) -> bool:
    """Whether no size that is a symbol in a trace is 0 or 1 in a plan: tracing took it for a size that is neither."""
    for slot, actual in zip(trace.slots, plan.shapes, strict=True):
        several = isinstance(slot.dtype, tuple)
        for shape, numbers in zip(slot.shape, actual, strict=True) if several else ((slot.shape, actual),):
            if any(type(size) is Dim and number < 2 for size, number in zip(shape, numbers, strict=True)):
                return False
    return True


class _Bounded(dict[Any, _Value]):
    """A dictionary of limited length: the entries that were put in first leave first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._lock = threading.Lock()

    def put(self, key: Any, value: _Value) -> None:
        """Enter a value as the newest."""
        with self._lock:
            self.pop(key, None)
            self[key] = value
            while len(self) > self._most:
                del self[next(iter(self))]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            super().clear()
