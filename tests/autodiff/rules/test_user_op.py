"""Operations registered from outside the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._ops.op import REGISTRY
from unspool.errors import ContributionShapeError, KernelError, MissingRuleError, OpDefinitionError

X = np.array([0.3, -1.2, 2.0])
Z = np.array([0.3 + 1j, -1.2 - 0.4j])


def define(name: str, **parts: Any) -> Any:
    return us.op(name, replace=True, **parts)


CUBE = {"kernel": lambda x: x**3, "needs": ("inputs",)}
CUBE_VJP = (lambda ct, out, x: ct * 3.0 * us.conj(x * x),)
CUBE_JVP = (lambda t, out, x: t * 3.0 * x * x,)


@pytest.mark.parametrize("at", [X, Z, X.astype("float32"), np.zeros((0, 2)), np.float64(0.5)])
@pytest.mark.parametrize(
    "rules",
    [
        {"vjp": CUBE_VJP, "jvp": CUBE_JVP},
        {"vjp": CUBE_VJP},
        {"jvp": CUBE_JVP},
        {"vjp": lambda i, ct, out, x: ct * 3.0 * us.conj(x * x)},
        {"jvp": lambda tangents, out, x: tangents[0] * 3.0 * x * x},
    ],
    ids=["both", "vjp", "jvp", "vjp-function", "jvp-function"],
)
def test_one_rule_is_enough_for_both_modes(rules: Any, at: Any) -> None:
    us.check_grad(define("cube", **CUBE, **rules), at)


@pytest.mark.parametrize("shapes", [((3,), (2, 3)), ((2, 1), (3,)), ((), (2,))])
@pytest.mark.parametrize(
    "rules",
    [
        {"vjp": (lambda ct, out, x, y: ct * us.conj(y), lambda ct, out, x, y: ct * us.conj(x))},
        {"vjp": lambda i, ct, out, *xs: ct * us.conj(xs[1 - i])},
        {"jvp": (lambda t, out, x, y: t * y, lambda t, out, x, y: t * x)},
    ],
)
def test_elementwise_ops_broadcast_and_promote(rules: Any, shapes: Any) -> None:
    times = define("times", kernel=np.multiply, infer="elementwise", needs=("inputs",), **rules)
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(0.5, 2.0, shape) for shape in shapes)
    close(times(x, y), x * y)
    assert times(us.tensor(x, dtype="float32"), 2.0).dtype == np.float32
    us.check_grad(times, x, y)
    us.check_grad(times, x + 1j, y)


def test_parameters_are_static_and_by_keyword() -> None:
    power = define("powered", kernel=lambda x, *, n: x**n, vjp=(lambda ct, out, x, *, n: ct * n * x ** (n - 1),))
    close(us.grad(lambda x: power(x, n=4))(2.0), 32.0)
    assert power(us.tensor(X), n=2) is not power(us.tensor(X), n=2)
    x = us.tensor(X)
    first = power(x, n=2)
    assert power(x, n=2) is first
    with pytest.raises(OpDefinitionError, match="parameter 'n' of op 'user:powered' must be hashable"):
        power(x, n=[1, 2])


def test_infer_declares_shape_and_dtype() -> None:
    total = define(
        "row_total",
        kernel=lambda x: x.sum(axis=-1),
        infer=lambda x: (x.shape[: x.ndim - 1], x.dtype),
        vjp=(lambda ct, out, x: us.broadcast_to(us.reshape(ct, (*ct.shape, 1)), x.shape),),
        needs=(),
    )
    n = us.dims("n")
    x = us.placeholder((n, 2))
    assert total(x).shape == (n,)
    close(total(x).eval({x: [[1.0, 2.0], [3.0, 4.0]]}), [3.0, 7.0])
    us.check_grad(total, X.reshape(1, 3))


@pytest.mark.parametrize(
    "rules",
    [
        {"jvp": lambda ts, out, x, *, n: (ts[0] * n, 2.0 * x * ts[0])},
        {
            "vjp": lambda i, ct, out, x, *, n: (
                (0.0 if ct[0] is None else ct[0] * n) + (0.0 if ct[1] is None else 2.0 * us.conj(x) * ct[1])
            )
        },
    ],
    ids=["jvp", "vjp"],
)
def test_ops_with_several_outputs(rules: Any) -> None:
    both = define(
        "multiple_and_square",
        kernel=lambda x, *, n: (x * n, x * x),
        infer=lambda x, *, n: [(x.shape, x.dtype)] * 2,
        multi=True,
        **rules,
    )
    first, second = both(us.tensor(X), n=3)
    close(first, 3 * X)
    close(second, X**2)
    us.check_grad(lambda x: both(x, n=3), Z)
    us.check_grad(lambda x: both(x, n=3)[1], X)


def test_nothing_is_differentiated_through_an_input_without_rule() -> None:
    scaled = define("scaled", kernel=np.multiply, infer="elementwise", vjp=(lambda ct, out, x, s: ct * s, None))
    x, s = us.tensor(2.0), us.tensor(3.0)
    found = scaled(x, s).grad([x, s], unconnected="none")
    close(found[0], 3.0)
    assert found[1] is None


def test_an_op_without_rules_names_itself_and_the_line() -> None:
    opaque = define("opaque", kernel=np.abs)
    x = us.tensor(2.0)
    y = opaque(x)  # the line to be named
    with pytest.raises(
        MissingRuleError, match=r"user:opaque.*reverse.*test_user_op.py:\d+: y = opaque\(x\)  # the line"
    ):
        y.grad(x)
    with pytest.raises(MissingRuleError, match="user:opaque.*forward"):
        us.jvp(opaque, (x,), (1.0,))


def test_user_ops_stand_apart_in_the_registry() -> None:
    define("standing_apart", kernel=np.abs)
    assert "user:standing_apart" in REGISTRY and "standing_apart" not in REGISTRY
    assert us.op("multiply", kernel=np.multiply, replace=True).__name__ == "multiply"


def test_names_are_unique_unless_replaced() -> None:
    old = define("taken", kernel=lambda x: x + 1)(us.tensor(1.0))
    with pytest.raises(OpDefinitionError, match="user:taken"):
        us.op("taken", kernel=np.abs)
    new = define("taken", kernel=lambda x: x + 2)(us.tensor(1.0))
    assert (float(old), float(new)) == (2.0, 3.0)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [lambda x: np.zeros(2), lambda x: x.astype("float32"), lambda x: x > 0],
    ids=["shape", "precision", "kind"],
)
def test_what_a_kernel_returns_is_held_against_the_declaration(kernel: Any) -> None:
    y = define("wrong", kernel=kernel)(us.tensor(X))
    with pytest.raises(OpDefinitionError, match=r"kernel of op 'wrong' returned .* test_user_op.py"):
        y.eval()


def test_a_kernel_cannot_write_into_its_inputs() -> None:
    def kernel(x: Any) -> Any:
        x += 1
        return x

    x = us.tensor(X) * 2.0
    with pytest.raises(KernelError, match="read-only"):
        define("writing", kernel=kernel)(x).eval()


def test_a_kernel_with_several_outputs_returns_that_many() -> None:
    pair = define("pair", kernel=lambda x: (x,), infer=lambda x: [(x.shape, x.dtype)] * 2, multi=True)
    with pytest.raises(OpDefinitionError, match="tuple of 2"):
        pair(X)[0].eval()


def test_a_rule_with_a_wrong_shape_names_its_op() -> None:
    f = define("wrong_rule", kernel=np.abs, vjp=(lambda ct, out, x: us.tensor([1.0, 2.0]),))
    with pytest.raises(ContributionShapeError, match=r"vjp rule of op 'user:wrong_rule'.*\(2,\)"):
        us.grad(f)(1.0)


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("", {"kernel": np.abs}, "name of an op"),
        ("bad", {"kernel": 3}, "kernel of op 'bad' must be callable"),
        ("bad", {"kernel": np.abs, "infer": "same"}, "infer of op 'bad'"),
        ("bad", {"kernel": np.abs, "vjp": (3,)}, "vjp of op 'bad'"),
        ("bad", {"kernel": np.abs, "jvp": 3}, "jvp of op 'bad'"),
        ("bad", {"kernel": np.abs, "needs": ("input",)}, "needs of op 'bad'"),
        ("bad", {"kernel": np.abs, "multi": True}, "needs an infer function"),
        ("bad", {"kernel": np.abs, "params": ("axis",)}, "params of op 'bad'"),
        ("bad", {"kernel": np.abs, "params": {"axis": "axis"}}, "parameter 'axis' of op 'bad'"),
        ("bad", {"kernel": lambda x: x, "params": {"axis": "size"}}, r"kernel of op 'bad' has .* \[\], but \['axis'\]"),
        ("bad", {"kernel": lambda x, *, n: x, "params": {}}, r"kernel of op 'bad' has .* \['n'\], but \[\]"),
        ("bad", {"kernel": lambda x, *, n: x, "infer": lambda x: (x.shape, x.dtype)}, r"infer of op 'bad' has"),
    ],
)
def test_definitions_that_contradict_themselves_are_refused(name: str, parts: Any, message: str) -> None:
    with pytest.raises(OpDefinitionError, match=message):
        us.op(name, **parts)


def test_calls_that_do_not_fit_the_definition_are_refused() -> None:
    f = define("one_rule", kernel=np.add, vjp=(lambda ct, out, x, y: ct,))
    with pytest.raises(OpDefinitionError, match="1 vjp rules but was given 2 inputs"):
        f(X, X)
    with pytest.raises(OpDefinitionError, match="at least one"):
        f()
    with pytest.raises(OpDefinitionError, match=r"infer of op 'strange' must return \(shape, dtype\)"):
        define("strange", kernel=np.abs, infer=lambda x: 3)(X)


# --- parameters ------------------------------------------------------------------------------------------------------


def test_parameters_are_the_keyword_only_ones_of_the_kernel() -> None:
    scaled = define("scaled", kernel=lambda x, *, by, shift=0.0: x * by + shift)
    np.testing.assert_array_equal(scaled(X, by=2.0).eval(), X * 2.0)
    assert scaled(X, by=2.0) is scaled(X, shift=0.0, by=2.0)
    with pytest.raises(
        OpDefinitionError, match=r"'user:scaled' was given 'times' but has the parameters \['by', 'shift'\]"
    ):
        scaled(X, times=2.0)
    with pytest.raises(OpDefinitionError, match="'user:scaled' was not given its parameter 'by'"):
        scaled(X)


def test_what_a_kernel_would_take_without_naming_it_is_declared_or_refused() -> None:
    def kernel(x: Any, **options: Any) -> Any:
        return np.round(x, **options)

    with pytest.raises(OpDefinitionError, match="was given 'decimals' but has"):
        define("rounded", kernel=kernel)(X, decimals=1)
    rounded = define("rounded", kernel=kernel, params={"decimals": "structure"})
    np.testing.assert_array_equal(rounded(X, decimals=1).eval(), np.round(X, 1))


def test_a_parameter_that_is_a_size_may_be_symbolic() -> None:
    def infer(x: Any, *, length: Any) -> Any:
        return (length,), x.dtype

    first = define("first", kernel=lambda x, *, length: x[:length], infer=infer, params={"length": "size"})
    n = us.dims("n")
    x = us.placeholder((n,))
    np.testing.assert_array_equal(first(x, length=n // 2).eval({x: np.arange(6.0)}), [0.0, 1.0, 2.0])
