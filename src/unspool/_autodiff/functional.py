"""Derivatives of functions: gradients, products with Jacobians and Hessians. All lazy, all over nested structures.

The one idea: call the function once on variables that are identities of their own, then sweep the graph it built, in
reverse or forward, and put the arguments in the places of the variables. The results are graph again, so every
transform composes with every other, to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.arguments import Outputs, Variables, as_argnums, call, name_of, split_aux
from unspool._autodiff.sweeps.connected import (
    OrZeros,
    Unconnected,
    check_unconnected,
    require_connection,
)
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.gradient import check_loss, gradient_parts
from unspool._autodiff.sweeps.repeated_sweeps import pull_one
from unspool._autodiff.sweeps.reverse import pullback
from unspool._dtypes import INEXACT
from unspool._fragments.asking import check_callable
from unspool._leaving import note_derivatives
from unspool._ops.identity import zeros_like
from unspool.errors import (
    StructureError,
)

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = [
    "grad",
    "hvp",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
]


# --- gradients -------------------------------------------------------------------------------------------------------


def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    unconnected: Unconnected = "auto",
) -> Callable[..., Any]:
    """Make the function that computes the gradient of a scalar function.

    Parameters
    ----------
    f : callable
        Returns a scalar tensor, or ``(scalar, aux)`` with ``has_aux=True``.
    argnums : int or tuple of int
        Which positional arguments to differentiate with respect to: tensors, arrays, floats, or nested structures.
    has_aux : bool
        Whether ``f`` also returns something that is passed through without being differentiated.
    holomorphic : bool
        For a complex result that is a holomorphic function of complex arguments: compute its complex derivative.
    unconnected : {"auto", "zeros", "none", "raise"}
        What to give for an argument that the result does not depend on: zeros, ``None`` or a `NotConnectedError`. By
        default zeros beside arguments that it depends on, and an error if it depends on none: then some value has left
        the graph. A result made of derivatives may be constant, as the second derivative of a linear function is.

    Returns
    -------
    callable
        Takes the arguments of ``f`` and returns the gradient, nested like the argument (a tuple of them if ``argnums``
        is one), or ``(gradient, aux)``. With respect to a complex z = x + iy it is dL/dx + i dL/dy.

    Examples
    --------
    >>> import unspool as us
    >>> us.grad(lambda x: x * x * x)(2.0).eval()
    array(12.)
    >>> us.grad(us.grad(lambda x: x * x * x))(2.0).eval()
    array(12.)
    """
    check_callable(f, "us.grad")
    both = value_and_grad(f, argnums, has_aux, holomorphic, unconnected)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    unconnected: Unconnected = "auto",
) -> Callable[..., Any]:
    """Make the function that computes a scalar function and its gradient; the parameters are those of `grad`.

    Returns
    -------
    callable
        Returns ``(value, gradient)``, or ``((value, aux), gradient)`` with ``has_aux=True``.

    Examples
    --------
    >>> import unspool as us
    >>> value, gradient = us.value_and_grad(lambda x: us.sum(x * x))(us.tensor([1.0, 2.0]))
    >>> float(value), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    check_callable(f, "us.value_and_grad")
    positions, single = as_argnums(argnums)
    check_unconnected(unconnected, ("auto", "zeros", "none", "raise"))

    @wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        variables, returned = call(f, args, kwargs, positions)
        output, aux = split_aux(f, returned, has_aux)
        outputs = Outputs(output)
        if not trees.is_leaf(outputs.structure):
            raise StructureError(
                f"a gradient needs one scalar, but {name_of(f)} returned {trees.show(outputs.structure)}; "
                "with has_aux=True a function returns (scalar, anything)"
            )
        require = partial(require_connection, outputs, variables, name_of(f))
        if outputs.plain and unconnected == "auto":
            require()
        loss = outputs.tensors[0]
        gradient = gradient_parts(loss, variables.tensors, variables.names, holomorphic, unconnected, require)
        (loss, *gradient), aux = variables.substitute([loss, *gradient], aux)
        note_derivatives(gradient)
        found = variables.restore(gradient)
        return ((loss, aux) if has_aux else loss), (found[0] if single else found)

    return value_and_gradient


# --- products with the Jacobian --------------------------------------------------------------------------------------


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False, unconnected: OrZeros = "auto") -> Any:
    """Call a function and return a function for its vector-Jacobian products (reverse mode).

    Parameters
    ----------
    f : callable
        Any function of nested arguments; returns ``(output, aux)`` with ``has_aux=True``.
    *primals : pytree
        The arguments. What is not floating-point or complex is held fixed, and its cotangent is ``None``.
    has_aux : bool
        Whether ``f`` also returns something that is passed through without being differentiated.
    unconnected : {"auto", "zeros"}
        What outputs of which none depends on an argument give: an error, or zeros; see `grad`.

    Returns
    -------
    out : pytree of Tensor
        What the function returned.
    vjp_fn : callable
        Takes a cotangent nested like ``out`` (``None`` where nothing flows) and returns a tuple with the cotangent of
        each argument. May be called many times; the function is not run again.
    aux : any
        Only with ``has_aux=True``.

    Examples
    --------
    >>> import unspool as us
    >>> out, pull = us.vjp(lambda x, y: x * y, us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0]))
    >>> [ct.eval().tolist() for ct in pull(us.tensor([1.0, 10.0]))]
    [[3.0, 40.0], [1.0, 20.0]]
    """
    variables, returned = call(f, primals, {}, range(len(primals)), fixed=True)
    output, aux = split_aux(f, returned, has_aux)
    outputs = Outputs(output)
    require = _requirement(f, outputs, variables, unconnected)

    def vjp_fn(cotangent: Any) -> tuple[Any, ...]:
        found = pullback(outputs.tensors, outputs.cotangents(cotangent), variables.tensors)
        pulled, _ = variables.substitute(_or_zeros(found, variables.tensors, require))
        note_derivatives(pulled)
        return variables.restore(pulled)

    placed, aux = variables.substitute(outputs.tensors, aux)
    out = outputs.restore(placed)
    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    unconnected: OrZeros = "auto",
) -> Any:
    """Call a function and return its Jacobian-vector product, that with tangents (forward mode).

    Parameters
    ----------
    f : callable
        Any function of nested arguments; returns ``(output, aux)`` with ``has_aux=True``.
    primals : tuple or list
        The arguments.
    tangents : tuple or list
        Their tangents, nested alike, with the same shapes. ``None`` stands for a leaf that does not move; it is the
        only tangent of a leaf that is not floating-point or complex.
    has_aux : bool
        Whether ``f`` also returns something that is passed through without being differentiated.
    unconnected : {"auto", "zeros"}
        What outputs of which none depends on an argument give: an error, or zeros; see `grad`.

    Returns
    -------
    out : pytree of Tensor
        What the function returned.
    tangent_out : pytree of Tensor
        Its tangent, nested alike; ``None`` for what is not floating-point or complex.
    aux : any
        Only with ``has_aux=True``.

    Examples
    --------
    >>> import unspool as us
    >>> out, tangent = us.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 10.0))
    >>> float(out), float(tangent)
    (6.0, 23.0)
    """
    _check_arguments(primals, tangents)
    variables, outputs, aux, push = _linearized(f, primals, has_aux, unconnected)
    placed, aux = variables.substitute([*outputs.tensors, *push(tangents)], aux)
    count = len(outputs.tensors)
    note_derivatives(placed[count:])
    out, tangent_out = outputs.restore(placed[:count]), outputs.restore(placed[count:])
    return (out, tangent_out, aux) if has_aux else (out, tangent_out)


def linearize(f: Callable[..., Any], *primals: Any, unconnected: OrZeros = "auto") -> tuple[Any, Callable[..., Any]]:
    """Call a function once and return its linear approximation there; the parameters are those of `jvp`.

    Returns
    -------
    out : pytree of Tensor
        What the function returned.
    jvp_fn : callable
        Takes one tangent per argument and returns the tangent of the output, as `jvp` does. May be called many times;
        the function is not run again.

    Examples
    --------
    >>> import unspool as us
    >>> out, push = us.linearize(lambda x: x * x, 3.0)
    >>> float(push(1.0)), float(push(2.0))
    (6.0, 12.0)
    """
    variables, outputs, _, push = _linearized(f, primals, False, unconnected)

    def jvp_fn(*tangents: Any) -> Any:
        pushed, _ = variables.substitute(push(tangents))
        note_derivatives(pushed)
        return outputs.restore(pushed)

    return outputs.restore(variables.substitute(outputs.tensors)[0]), jvp_fn


def _linearized(
    f: Callable[..., Any], primals: Sequence[Any], has_aux: bool, unconnected: OrZeros
) -> tuple[Variables, Outputs, Any, Callable[[Sequence[Any]], list[Any]]]:
    """Call a function; return its variables, outputs and aux, and what gives the tangents of the outputs."""
    variables, returned = call(f, primals, {}, range(len(primals)), fixed=True)
    output, aux = split_aux(f, returned, has_aux)
    outputs = Outputs(output)
    require = _requirement(f, outputs, variables, unconnected)

    def push(tangents: Sequence[Any]) -> list[Any]:
        found = pushforward(outputs.tensors, variables.tensors, variables.tangents(tangents))
        return _or_zeros(found, outputs.tensors, require)

    return variables, outputs, aux, push


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], unconnected: OrZeros = "auto") -> Any:
    """Return the product of the Hessian of a scalar function with tangents, at the cost of a few gradients.

    Parameters
    ----------
    f : callable
        Returns a real scalar.
    primals, tangents : tuple or list
        The arguments, and one tangent for each, nested alike.
    unconnected : {"auto", "zeros"}
        What a scalar that depends on no argument gives: an error, or zeros; see `grad`.

    Returns
    -------
    pytree of Tensor
        The product, nested like the argument; a tuple of them if there are several arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.hvp(lambda x: us.sum(x * x * x), (us.tensor([1.0, 2.0]),), (us.tensor([1.0, 1.0]),)).eval()
    array([ 6., 12.])
    """
    _check_arguments(primals, tangents)
    variables, returned = call(f, primals, {}, range(len(primals)), fixed=True)
    outputs = Outputs(returned)
    if not trees.is_leaf(outputs.structure):
        raise StructureError(f"a Hessian needs one scalar, but {name_of(f)} returned {trees.show(outputs.structure)}")
    require = _requirement(f, outputs, variables, unconnected)
    loss = outputs.tensors[0]
    check_loss(loss, holomorphic=False)
    slopes = _or_zeros(pull_one(loss, variables.tensors), variables.tensors, require)
    found = pushforward(slopes, variables.tensors, variables.tangents(tangents))
    placed, _ = variables.substitute(_or_zeros(found, variables.tensors))
    note_derivatives(placed)
    products = variables.restore(placed)
    return products[0] if len(products) == 1 else products


def _check_arguments(primals: Any, tangents: Any) -> None:
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise StructureError(f"{name} is a tuple with one entry per argument, got {type(given).__name__}")
    if len(primals) != len(tangents):
        raise StructureError(f"there are {len(primals)} primals and {len(tangents)} tangents")


def _requirement(
    f: Callable[..., Any], outputs: Outputs, variables: Variables, unconnected: OrZeros
) -> Callable[[], None]:
    """Return what raises if outputs depend on no variable and should; at once if none of them is a tensor."""
    check_unconnected(unconnected, ("auto", "zeros"))
    if unconnected == "zeros":
        return lambda: None
    if outputs.plain:
        require_connection(outputs, variables, name_of(f))
    return partial(require_connection, outputs, variables, name_of(f))


def _or_zeros(
    found: Sequence[Tensor | None], like: Sequence[Tensor], require: Callable[[], None] = lambda: None
) -> list[Any]:
    """Return derivatives with zeros for what is not connected, and ``None`` for what has no derivative."""
    if all(derivative is None for derivative in found):
        require()
    return [
        derivative if derivative is not None else zeros_like(x) if x.dtype in INEXACT else None
        for derivative, x in zip(found, like, strict=True)
    ]
