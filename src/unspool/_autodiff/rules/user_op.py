"""`op`: register an operation from outside the package, with the same record that built-in ones have.

User ops live in the registry under names that begin with ``user:``. What the kernel returns is held against what was
declared, and the arrays it gets are read-only, so that a mistake shows up where it is made.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unspool import _graph
from unspool._autodiff.sweeps.derived import run_rule
from unspool._dims import Shape
from unspool._dtypes import DType, as_dtype, promote
from unspool._ops import batching
from unspool._ops.broadcasting import align, broadcast_shapes
from unspool._ops.elementwise import fold_to_shape
from unspool._ops.layout import broadcast_to
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool._ops.op import (
    INPUTS,
    OUTPUT,
    REGISTRY,
    SIZE,
    STRUCTURE,
    USERS,
    Op,
    Rules,
    check_params,
    keywords_of,
    parts,
    register,
)
from unspool.errors import OpDefinitionError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_registering = threading.Lock()


@dataclass(frozen=True)
class ArrayType:
    """What ``infer`` of a user op knows of an input: its shape, which may hold symbolic sizes, and its dtype."""

    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


def op(
    name: str,
    *,
    kernel: Callable[..., Any],
    infer: Callable[..., Any] | Literal["elementwise"] | None = None,
    vjp: Rules = None,
    jvp: Rules = None,
    params: Mapping[str, str] | None = None,
    needs: Sequence[str] = (INPUTS, OUTPUT),
    multi: bool = False,
    replace: bool = False,
    batch: Literal["leading"] | None = None,
) -> Callable[..., Any]:
    """Register an operation of your own and return the function that applies it.

    Parameters
    ----------
    name : str
        A name that no other user op has. In messages and summaries it appears as ``user:name``.
    kernel : callable
        ``kernel(*arrays, **params)`` computes the value with NumPy. It must not write into its arrays.
    infer : callable, "elementwise" or None
        ``infer(*inputs, **params)`` returns ``(shape, dtype)`` of the result; each input has ``shape``, ``dtype`` and
        ``ndim``. By default the result is like the first input. ``"elementwise"`` broadcasts the inputs and promotes
        their dtypes as NumPy does, and rules need not undo the broadcasting.
    vjp : tuple of callable or None, or callable, optional
        One rule per input, ``rule(ct, out, *inputs, **params)``, that returns the cotangent of that input, built with
        unspool functions; ``None`` for an input through which nothing is differentiated. Or one function for all,
        ``vjp(i, ct, out, *inputs, **params)``.
    jvp : tuple of callable or None, or callable, optional
        One rule per input, ``rule(t, out, *inputs, **params)``, whose results are summed, or one function
        ``jvp(tangents, out, *inputs, **params)`` with ``None`` for inputs that do not move. If only one of ``vjp`` and
        ``jvp`` is given, the other is its transpose.
    params : mapping of str to {"structure", "size"}, optional
        What the parameters are, which are keyword-only in ``kernel`` and ``infer``: part of what the program is (an
        axis, a degree, a flag), or a size, which may be symbolic. By default the keyword-only parameters of the kernel
        are structure. What changes from step to step of a loop is better an input.
    needs : sequence of {"inputs", "output"}
        Which values the vjp rules look at.
    multi : bool
        Whether there are several outputs: ``infer`` then returns a list of pairs, the kernel a tuple, and in rules
        ``out``, ``ct`` and what ``jvp`` returns are tuples.
    replace : bool
        Whether a user op of that name may exist and is replaced, as in a notebook cell that is run again. Tensors made
        with the old one keep it.
    batch : {"leading"}, optional
        What the op does to a batch (`vmap`). ``"leading"`` says that kernel and rules work for stacks, with further
        axes before those of every input. By default the kernel is called for one member after the other; one that is
        elementwise never is.

    Returns
    -------
    callable
        Takes tensors and arrays by position and static, hashable parameters by keyword.

    Raises
    ------
    OpDefinitionError
        If the parts do not fit together; when it is called, if inputs or parameters do not fit what was declared.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> cube = us.op(
    ...     "cube", kernel=lambda x: x**3, vjp=(lambda ct, out, x: ct * 3.0 * x * x,), needs=("inputs",), replace=True
    ... )
    >>> us.grad(cube)(2.0).eval()
    array(12.)
    >>> us.check_grad(cube, np.array([1.0, 2.0])).ok
    True
    """
    _check_definition(name, kernel, infer, vjp, jvp, needs, multi)
    rule = _infer_rule(infer, multi)
    elementwise = infer == "elementwise"
    declared = _declared_params(name, params, kernel, infer)
    made = Op(
        USERS + name,
        infer=lambda *inputs, **params: _declared(name, rule, inputs, params, multi),
        kernel=_checked_kernel(name, kernel, rule, multi),
        vjp=_finish_vjp(vjp, _fold if elementwise else _as_given),
        jvp=_finish_jvp(jvp, _spread if elementwise else _as_given),
        params=declared,
        needs=tuple(needs),
        multi=multi,
        users_own=True,
        batch=_batch_rule(name, batch, elementwise),
    )
    # The rule is asked every time: it is the user's, and may look at more than shapes, dtypes and parameters.
    made.inferred = None
    with _registering:
        if replace:
            REGISTRY.pop(made.name, None)
        register(made)
    defaults = getattr(inspect.unwrap(kernel), "__kwdefaults__", None) or {}

    def apply(*operands: Any, **given: Any) -> Any:
        inputs = as_operands(*operands)
        params = _with_defaults(made, given, defaults)
        _check_call(made, inputs, params)
        if elementwise:
            inputs, _ = align(*inputs)
        if multi:
            return parts(_graph.apply_multi(made, *inputs, **params))
        return _graph.apply(made, *inputs, **params)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = kernel.__doc__
    return apply


def _batch_rule(name: str, batch: Any, is_elementwise: bool) -> batching.BatchRule:
    if batch not in (None, "leading"):
        raise OpDefinitionError(f"batch of op {name!r} is 'leading' or None, got {batch!r}")
    if is_elementwise:
        return batching.elementwise
    return batching.one_by_one if batch is None else batching.leading


# --- parameters ------------------------------------------------------------------------------------------------------


def _declared_params(name: str, params: Mapping[str, str] | None, kernel: Any, infer: Any) -> Mapping[str, str]:
    """Return what the parameters of an op are, held against what its functions take."""
    functions = {"kernel": inspect.unwrap(kernel)}
    if callable(infer):
        functions["infer"] = inspect.unwrap(infer)
    if params is None:
        params = dict.fromkeys(keywords_of(functions["kernel"])[0], STRUCTURE)
    elif not isinstance(params, Mapping):
        raise OpDefinitionError(f"params of op {name!r} maps names to {STRUCTURE!r} or {SIZE!r}, got {params!r}")
    check_params(name, params, functions)
    return params


def _with_defaults(made: Op, given: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call in the order in which they are declared, those of the kernel that are not given.

    So two ways to write one call are one node.
    """
    if not given and not made.params:
        return given
    undeclared = [key for key in given if key not in made.params]
    if undeclared:
        raise OpDefinitionError(
            f"op {made.name!r} was given {undeclared[0]!r} but has the parameters {sorted(made.params)}; they are the "
            "keyword-only ones of its kernel, or what params={...} of us.op declares"
        )
    missing = [key for key in made.params if key not in given and key not in defaults]
    if missing:
        raise OpDefinitionError(f"op {made.name!r} was not given its parameter {missing[0]!r}")
    return {key: given[key] if key in given else defaults[key] for key in made.params}


# --- shapes and values -----------------------------------------------------------------------------------------------


def _infer_rule(infer: Any, multi: bool) -> Callable[..., Any]:
    if infer is None:
        return lambda x, *rest, **params: (x.shape, x.dtype)
    if infer == "elementwise":
        return lambda *inputs, **params: (
            broadcast_shapes(*[x.shape for x in inputs]),
            promote(*[x.dtype for x in inputs]),
        )
    rule: Callable[..., Any] = infer
    return rule


def _declared(name: str, rule: Callable[..., Any], inputs: Sequence[Any], params: Any, multi: bool) -> Any:
    """Return what ``infer`` declares for inputs that have a shape and a dtype."""
    declared = rule(*[ArrayType(x.shape, x.dtype) for x in inputs], **params)
    try:
        pairs = [(as_shape(shape), as_dtype(dtype)) for shape, dtype in (declared if multi else [declared])]
    except (TypeError, ValueError) as error:
        what = "a list of pairs (shape, dtype)" if multi else "(shape, dtype)"
        raise OpDefinitionError(f"infer of op {name!r} must return {what}, got {declared!r}: {error}") from None
    return pairs if multi else pairs[0]


def _checked_kernel(name: str, kernel: Callable[..., Any], rule: Callable[..., Any], multi: bool) -> Callable[..., Any]:
    def checked(*arrays: Any, **params: Any) -> Any:
        guarded = [_read_only(a) for a in arrays]
        value = kernel(*guarded, **params)
        if any(a.dtype == object for a in guarded):  # the tape's rationals have no dtype to hold the result to
            return value
        declared = _declared(name, rule, guarded, params, multi)
        values = value if multi else (value,)
        wanted = declared if multi else [declared]
        if multi and (not isinstance(value, (tuple, list)) or len(value) != len(wanted)):
            raise OpDefinitionError(
                f"the kernel of op {name!r} must return a tuple of {len(wanted)} arrays, got {value!r}"
            )
        for got, (shape, dtype) in zip(map(np.asarray, values), wanted, strict=True):
            if got.shape != shape or got.dtype != dtype:
                raise OpDefinitionError(
                    f"the kernel of op {name!r} returned shape {got.shape} and dtype {got.dtype}, "
                    f"but it is declared to return shape {shape} and dtype {dtype}"
                )
        return tuple(values) if multi else value

    return checked


def _read_only(array: Any) -> Any:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


# --- rules -----------------------------------------------------------------------------------------------------------


# Every rule is wrapped: what it returns is made a tensor and, for elementwise ops, brought into the shape it must have.


def _finish_vjp(rules: Rules, finish: Callable[..., Any]) -> Rules:
    if rules is None:
        return None
    if isinstance(rules, (tuple, list)):
        return tuple(None if rule is None else _finished(rule, finish, i) for i, rule in enumerate(rules))
    rule_for_all = rules

    def contribution(i: int, ct: Any, out: Any, *inputs: Any, **params: Any) -> Any:
        return finish(run_rule(rule_for_all, None, i, ct, out, *inputs, **params), out, inputs, i)

    return contribution


def _finish_jvp(rules: Rules, finish: Callable[..., Any]) -> Rules:
    if rules is None:
        return None
    if isinstance(rules, (tuple, list)):
        return tuple(None if rule is None else _finished(rule, finish, i) for i, rule in enumerate(rules))
    return _finished(rules, finish, 0)


def _finished(rule: Callable[..., Any], finish: Callable[..., Any], position: int) -> Callable[..., Any]:
    def finished(given: Any, out: Any, *inputs: Any, **params: Any) -> Any:
        return finish(run_rule(rule, None, given, out, *inputs, **params), out, inputs, position)

    return finished


def _as_given(result: Any, out: Any, inputs: Sequence[Tensor], position: int) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(None if r is None else as_tensor(r) for r in result)
    return None if result is None else as_tensor(result)


def _spread(result: Any, out: Tensor, inputs: Sequence[Tensor], position: int) -> Any:
    return None if result is None else broadcast_to(result, out.shape)


def _fold(result: Any, out: Tensor, inputs: Sequence[Tensor], position: int) -> Any:
    return None if result is None else fold_to_shape(as_tensor(result), inputs[position].shape)


# --- mistakes --------------------------------------------------------------------------------------------------------


def _check_definition(name: Any, kernel: Any, infer: Any, vjp: Any, jvp: Any, needs: Any, multi: bool) -> None:
    if not isinstance(name, str) or not name:
        raise OpDefinitionError(f"the name of an op is a string, got {name!r}")
    if not callable(kernel):
        raise OpDefinitionError(f"the kernel of op {name!r} must be callable, got {kernel!r}")
    if not (infer is None or infer == "elementwise" or callable(infer)):
        raise OpDefinitionError(f"infer of op {name!r} is a function, 'elementwise' or None, got {infer!r}")
    if multi and not callable(infer):
        raise OpDefinitionError(f"op {name!r} has several outputs: it needs an infer function that describes them")
    for mode, rules in (("vjp", vjp), ("jvp", jvp)):
        given = rules if isinstance(rules, (tuple, list)) else (rules,)
        if not all(rule is None or callable(rule) for rule in given):
            raise OpDefinitionError(f"{mode} of op {name!r} is a tuple of functions, or one function, got {rules!r}")
    if multi and isinstance(jvp, (tuple, list)):
        raise OpDefinitionError(f"op {name!r} has several outputs: its jvp is one function of all tangents")
    if set(needs) - {INPUTS, OUTPUT}:
        raise OpDefinitionError(f"needs of op {name!r} may hold 'inputs' and 'output', got {tuple(needs)!r}")


def _check_call(made: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
    if not inputs:
        raise OpDefinitionError(f"op {made.name!r} takes at least one tensor or array by position")
    for mode, rules in (("vjp", made.vjp), ("jvp", made.jvp)):
        if isinstance(rules, tuple) and len(rules) != len(inputs):
            raise OpDefinitionError(
                f"op {made.name!r} has {len(rules)} {mode} rules but was given {len(inputs)} inputs"
            )
    for key, value in params.items():
        try:
            hash(value)
        except TypeError:
            raise OpDefinitionError(
                f"parameter {key!r} of op {made.name!r} must be hashable (a tuple in place of a list), "
                f"got {type(value).__name__}"
            ) from None
