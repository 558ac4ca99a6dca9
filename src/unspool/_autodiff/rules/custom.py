"""Functions that bring their own derivative rule: `custom_vjp` and `custom_jvp`.

The function runs as usual and its graph gives the values. One node is placed on top of that graph, with the outputs,
the residuals and the arguments as inputs; derivatives pass from it straight to the arguments, through the rule, and
never look at how the outputs were made. Where one mode has a rule, the other is its transpose, so both work.

The rule sees arguments, residuals and what it returns. A tensor that the function closes over is out of its sight:
differentiating with respect to one raises, instead of leaving its part out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from unspool import _graph
from unspool import _trees as trees
from unspool._autodiff.arguments import name_of
from unspool._autodiff.rules.custom_call import CustomCall
from unspool._autodiff.rules.user_op import op
from unspool._autodiff.sweeps.derived import run_rule
from unspool._autodiff.sweeps.transpose import pull_through
from unspool._dtypes import INEXACT
from unspool._fragments.asking import check_callable
from unspool._graph import Node
from unspool._ops.batching import one_by_one
from unspool._ops.identity import stop_gradient as hide_history
from unspool._ops.identity import zeros_like
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op, parts, register
from unspool.errors import ArgumentError, MissingRuleError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["custom_jvp", "custom_vjp", "op", "stop_gradient"]

_F = TypeVar("_F", bound=Callable[..., Any])

# The functions with a rule that are alive, by module and name; what is defined last has a name.
FUNCTIONS: WeakValueDictionary[str, custom_vjp | custom_jvp] = WeakValueDictionary()


def stop_gradient(x: Any) -> Any:
    """Return tensors detached from their history: the same values, as constants to all derivatives.

    Parameters
    ----------
    x : pytree of Tensor or array_like
        What is not a floating-point or complex tensor is returned as it is.

    Examples
    --------
    >>> import unspool as us
    >>> us.grad(lambda x: x * us.stop_gradient(x))(3.0).eval()
    array(3.)
    """
    if isinstance(x, Node):
        return hide_history(x)  # type: ignore[arg-type]
    return trees.map_leaves(lambda leaf: stop_gradient(leaf) if isinstance(leaf, Node) else leaf, x)


class custom_vjp:  # noqa: N801 (used as a decorator)
    """Decorate a function whose reverse-mode rule is given with ``defvjp``.

    Parameters
    ----------
    f : callable
        The function, of tensors or nested structures.
    nondiff_argnums : tuple of int
        Positions of arguments that are passed to the rules as they are.

    Examples
    --------
    >>> import unspool as us
    >>> @us.custom_vjp
    ... def log1pexp(x):
    ...     return us.log(1.0 + us.exp(x))
    >>> def forward(x):
    ...     return log1pexp.f(x), x
    >>> def backward(x, ct):
    ...     return (ct / (1.0 + us.exp(-x)),)
    >>> log1pexp.defvjp(forward, backward)
    >>> us.grad(log1pexp)(800.0).eval()
    array(1.)
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        check_callable(f, "us.custom_vjp")
        self.f = f
        self.name = name_of(f)
        self.nondiff_argnums = _as_positions(nondiff_argnums)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        update_wrapper(self, f)
        _remember(self)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Give the rule.

        Parameters
        ----------
        fwd : callable
            Takes the arguments of the function and returns ``(output, residuals)``. It is called in place of the
            function. Residuals are anything that ``bwd`` needs, nested as it likes; tensors among them are computed
            along with the output.
        bwd : callable
            ``bwd(residuals, ct)`` with a cotangent nested like the output returns a tuple with the cotangent of each
            argument; ``None`` where nothing flows. Arguments of ``nondiff_argnums`` come before the residuals.
        """
        check_callable(fwd, f"{self.name}.defvjp, for fwd,")
        check_callable(bwd, f"{self.name}.defvjp, for bwd,")
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; its result is differentiated by the rule."""
        if self.fwd is None or self.bwd is None:
            raise MissingRuleError(
                f"{self.name} is a custom_vjp without a rule; give it with {self.name}.defvjp(fwd, bwd)"
            )
        call = CustomCall(self, _positional(self, args, kwargs))
        returned = self.fwd(*call.inner_args())
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise StructureError(f"the fwd rule of {self.name} must return (output, residuals), got {returned!r}")
        return _place(CUSTOM_VJP, call, *returned)


class custom_jvp:  # noqa: N801 (used as a decorator)
    """Decorate a function whose forward-mode rule is given with ``defjvp``.

    Parameters
    ----------
    f : callable
        The function, of tensors or nested structures.
    nondiff_argnums : tuple of int
        Positions of arguments that are passed to the rule as they are.

    Examples
    --------
    >>> import unspool as us
    >>> @us.custom_jvp
    ... def sinc(x):
    ...     return us.where(x == 0, 1.0, us.sin(x) / us.where(x == 0, 1.0, x))
    >>> @sinc.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     safe = us.where(x == 0, 1.0, x)
    ...     return sinc(x), t * us.where(x == 0, 0.0, (us.cos(x) - sinc(x)) / safe)
    >>> us.grad(sinc)(0.0).eval()
    array(0.)
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        check_callable(f, "us.custom_jvp")
        self.f = f
        self.name = name_of(f)
        self.nondiff_argnums = _as_positions(nondiff_argnums)
        self.rule: Callable[..., Any] | None = None
        update_wrapper(self, f)
        _remember(self)

    def defjvp(self, rule: _F) -> _F:
        """Give the rule; may be used as a decorator.

        Parameters
        ----------
        rule : callable
            ``rule(primals, tangents)``, two tuples with one entry per argument, returns ``(output, tangent_out)``. It
            is linear in the tangents. Arguments of ``nondiff_argnums`` come before the two.
        """
        check_callable(rule, f"{self.name}.defjvp")
        self.rule = rule
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; its result is differentiated by the rule."""
        if self.rule is None:
            raise MissingRuleError(f"{self.name} is a custom_jvp without a rule; give it with {self.name}.defjvp(rule)")
        call = CustomCall(self, _positional(self, args, kwargs))
        return _place(CUSTOM_JVP, call, self.f(*call.inner_args()), ())


def _remember(function: Any) -> None:
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if module and name:
        FUNCTIONS[f"{module}.{name}"] = function


# --- the node --------------------------------------------------------------------------------------------------------


def _place(rule: Op, call: CustomCall, output: Any, residuals: Any) -> Any:
    """Put the node with the rule on top of what the function built, and return its outputs."""
    inputs = call.close(output, residuals)
    if not call.n_out:
        return output
    return call.nest_outputs(parts(_graph.apply_multi(rule, *inputs, call=call)))


def _infer(*inputs: Node, call: CustomCall) -> list[tuple[Any, Any]]:
    return [(x.shape, x.dtype) for x in inputs[: call.n_out]]


def _kernel(*arrays: Any, call: CustomCall) -> tuple[Any, ...]:
    return arrays[: call.n_out]


def _backward(needed: Sequence[bool], ct: Any, out: Any, *inputs: Tensor, call: CustomCall) -> list[Any]:
    """Return the cotangents that the ``bwd`` rule gives to the arguments."""
    call.refuse_closed_over(needed)
    cotangents = [
        None if x.dtype not in INEXACT else zeros_like(x) if c is None else c for x, c in zip(out, ct, strict=True)
    ]
    returned = run_rule(
        call.function.bwd, call.function, *call.nondiff, call.nest_residuals(inputs), call.nest_outputs(cotangents)
    )
    return call.on_arguments(call.check_cotangents(returned, inputs))


def _forward(tangents: Sequence[Any], out: Any, *inputs: Tensor, call: CustomCall) -> Any:
    """Return the tangents that the ``jvp`` rule gives to the outputs."""
    call.refuse_closed_over([t is not None for t in tangents])
    primals = call.nest_arguments(inputs)
    moving = call.nest_tangents(inputs, tangents)
    return call.check_tangents(run_rule(call.function.rule, call.function, *call.nondiff, primals, moving), inputs)


def _backward_by_transposition(
    needed: Sequence[bool], ct: Any, out: Any, *inputs: Tensor, call: CustomCall
) -> list[Any]:
    call.refuse_closed_over(needed)
    return pull_through(lambda tangents: _forward(tangents, out, *inputs, call=call), inputs, needed, ct)


def _passes(params: Any) -> Sequence[bool]:
    passes: Sequence[bool] = params["call"].passes
    return passes


CUSTOM_VJP = register(
    Op(
        "custom_vjp",
        infer=_infer,
        kernel=_kernel,
        vjp=JointRule(_backward, _passes),
        params={"call": STRUCTURE},
        needs=(INPUTS,),
        multi=True,
        passes=True,
        view=True,
        batch=one_by_one,
    )
)

CUSTOM_JVP = register(
    Op(
        "custom_jvp",
        infer=_infer,
        kernel=_kernel,
        vjp=JointRule(_backward_by_transposition, _passes),
        jvp=_forward,
        params={"call": STRUCTURE},
        # A rule that calls the function again finds the node itself; its outputs are inputs that are passed on.
        needs=(INPUTS, OUTPUT),
        multi=True,
        passes=True,
        view=True,
        batch=one_by_one,
    )
)


def _as_positions(positions: int | Sequence[int]) -> tuple[int, ...]:
    try:
        found: tuple[Any, ...] = tuple(positions)  # type: ignore[arg-type]
    except TypeError:
        found = (positions,)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in found):
        raise ArgumentError(f"nondiff_argnums are positions (0, 1, ...), got {positions!r}")
    return found


def _positional(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments by position, which is how rules get them."""
    if not kwargs:
        return args
    try:
        bound = inspect.signature(function.f).bind(*args, **kwargs)
    except TypeError as error:
        raise StructureError(f"{function.name}: {error}") from None
    if bound.kwargs:
        raise StructureError(f"{function.name} has a custom rule, which takes its arguments by position only")
    return bound.args
