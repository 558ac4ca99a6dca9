"""`Tensor`: what computes and what does not, conversions, immutability, and loops that look at values."""

from __future__ import annotations

import copy
import operator

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._ops.op import Op
from unspool.errors import DTypeError, KernelError, MutationError, ShapeError, UnknownSizeError


def _refuse(*arrays, **params):
    raise AssertionError("computed")


POISON = Op("poison", infer=lambda x: (x.shape, x.dtype), kernel=_refuse)


def poisoned(*shape, dtype="float64"):
    """Return a tensor that cannot be computed."""
    return _graph.apply(POISON, us.tensor(np.ones(shape), dtype=dtype))


# --- what does not compute --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (repr, "poison (2, 3) complex128"),
        (str, "poison (2, 3) complex128"),
        (lambda t: f"{t}", "poison (2, 3) complex128"),
        (len, 2),
        (lambda t: t.shape, (2, 3)),
        (lambda t: t.ndim, 2),
        (lambda t: t.size, 6),
        (lambda t: t.nbytes, 96),
        (lambda t: t.itemsize, 16),
        (lambda t: t.dtype, np.dtype("complex128")),
        (lambda t: t.name, None),
        (lambda t: t.device, "cpu"),
        (lambda t: t.T.shape, (3, 2)),
        (lambda t: t.mT.shape, (3, 2)),
        (lambda t: t.H.shape, (3, 2)),
        (lambda t: t.real.dtype, np.dtype("float64")),
        (lambda t: t.imag.dtype, np.dtype("float64")),
        (lambda t: (t + 1).shape, (2, 3)),
        (lambda t: (t[0] * t.sum()).shape, (3,)),
        (lambda t: hash(t) == hash(t), True),
        (lambda t: copy.copy(t) is t and copy.deepcopy(t) is t, True),
    ],
)
def test_looking_at_a_recipe_computes_nothing(look, expected):
    assert look(poisoned(2, 3, dtype="complex128")) == expected


def test_comparing_builds_graph_and_computes_nothing():
    t = poisoned(2)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        found = compare(t, 1.0)
        assert isinstance(found, us.Tensor) and found.dtype == bool


def test_repr_says_what_a_recipe_is_until_its_value_is_known():
    assert repr(us.placeholder((us.dims("n"), 2), dtype="int32", name="rows")) == "placeholder 'rows' (n, 2) int32"
    y = us.exp(us.tensor([0.0, 0.0]))
    assert repr(y) == "exp (2,) float64"
    y.eval()
    assert repr(y) == "Tensor([1., 1.])"


@pytest.mark.parametrize(
    "value", [np.arange(2000.0).reshape(4, 500), np.float32([[1.5], [2.5]]), np.array(True), np.zeros((0, 3)), 1j]
)
def test_a_value_is_shown_as_numpy_shows_it(value):
    plain = np.array_repr(np.asarray(value))
    lines = [line.strip() for line in repr(us.tensor(value)).splitlines()]
    assert lines == [line.strip() for line in plain.replace("array(", "Tensor(").splitlines()]
    assert str(us.tensor(value)) == str(np.asarray(value))


def test_the_name_is_shown_with_the_value():
    assert repr(us.tensor([1.0], name="x")) == "Tensor([1.], name='x')"


def test_a_number_prints_as_a_number():
    loss = us.sum(us.tensor([1.0, 2.0]))
    assert (str(loss), f"{loss}", f"{loss:.2f}") == ("3.0", "3.0", "3.00")


def test_what_has_no_value_prints_as_its_recipe():
    x = us.placeholder((2,))
    assert str(x + 1.0) == "add (2,) float64"


def test_a_notebook_shows_what_a_tensor_is_and_its_value_without_computing_it():
    y = us.exp(us.tensor([0.0, 0.0]))
    shown = y._repr_html_()
    assert "exp" in shown and "(2,)" in shown and "test_tensor.py" in shown and "<pre>" not in shown
    assert y.value is None
    y.eval()
    assert "<pre>[1., 1.]</pre>" in y._repr_html_()
    assert "&lt;b&gt;" in us.tensor(1.0, name="<b>")._repr_html_()


@pytest.mark.parametrize(
    "what", [us.tensor(1.0), us, us.fft, us.linalg, us.random, us.special, us.stats, us.networks, us.errors, us.debug]
)
def test_completion_offers_public_names_only(what):
    offered = [name for name in dir(what) if not name.startswith("__")]
    assert offered and not any(name.startswith("_") and name != "_repr_html_" for name in offered)
    assert not {"attributes", "piece", "lasti", "TYPE_CHECKING", "annotations", "np", "Any"} & set(offered)


# --- what computes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        float,
        int,
        bool,
        complex,
        lambda t: t.item(),
        lambda t: t.tolist(),
        np.asarray,
        lambda t: t.eval(),
        lambda t: t.numpy(),
        lambda t: 1.0 in t,
        lambda t: f"{t:.3f}",
    ],
)
def test_reading_a_value_computes_it(read):
    with pytest.raises(KernelError, match="computed"):
        read(poisoned(1))


def test_conversions_give_the_value():
    x = us.tensor(2.75) * 1.0 + 0.0
    assert float(x) == 2.75 and int(x) == 2 and bool(x) is True and complex(x) == 2.75 + 0j
    assert type(float(x)) is float and type(int(x)) is int and type(complex(x)) is complex
    assert x.item() == 2.75 and f"{x:.1f}" == "2.8"
    assert us.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert float(us.tensor([[3.0]])) == 3.0
    assert operator.index(us.tensor(3) + 1) == 4 and [10, 20, 30][us.tensor(1)] == 20
    assert complex(us.tensor(1 + 2j)) == 1 + 2j


@pytest.mark.parametrize("convert", [float, int, complex, bool])
def test_only_one_element_converts_to_a_number(convert):
    for t in (us.tensor([1.0, 2.0]), us.tensor(np.zeros((0,)))):
        with pytest.raises(ShapeError, match="one element"):
            convert(t)


def test_what_is_no_index_or_no_real_number_is_refused():
    with pytest.raises(DTypeError):
        operator.index(us.tensor(1.0))
    with pytest.raises((DTypeError, TypeError)):
        float(us.tensor(1 + 2j))


def test_arrays_come_out_read_only_or_as_asked():
    x = us.tensor([1.0, 2.0]) * 2.0
    assert not np.asarray(x).flags.writeable
    assert np.array(x).flags.writeable
    assert np.asarray(x, dtype="float32").dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        x.__array__(dtype="float32", copy=False)
    with pytest.raises(ValueError, match="read-only"):
        x.eval()[0] = 7.0
    assert x.tolist() == [2.0, 4.0]


def test_iteration_gives_tensors_that_stay_connected():
    x = us.tensor([1.0, 2.0, 3.0])
    rows = list(x)
    assert [float(r) for r in rows] == [1.0, 2.0, 3.0]
    a, b, c = x
    np.testing.assert_array_equal((a * b * c).grad(x).eval(), [6.0, 3.0, 2.0])
    with pytest.raises(ShapeError):
        iter(us.tensor(1.0))


def test_membership_looks_at_values():
    x = us.tensor([1.0, 2.0])
    assert 2.0 in x and 3.0 not in x
    assert 4.0 in x * 2.0


def test_len_needs_an_axis_of_known_size():
    with pytest.raises(ShapeError, match="no axes"):
        len(us.tensor(1.0))
    with pytest.raises(UnknownSizeError):
        len(us.placeholder((us.dims("n"),)))
    assert us.placeholder((us.dims("n"), 3)).size == 3 * us.dims("n")


def test_evaluating_changes_nothing_about_a_tensor():
    x = us.tensor([1.0, 2.0])
    y = us.sin(x)
    before = (y.op, y.inputs, y.shape, y.dtype, y.id)
    first = y.eval()
    assert (y.op, y.inputs, y.shape, y.dtype, y.id) == before
    assert y.eval() is first
    assert us.sin(x) is y
    np.testing.assert_allclose(us.sum(y * y).grad(x).eval(), 2 * np.sin([1, 2]) * np.cos([1, 2]))


# --- immutable --------------------------------------------------------------------------------------------------------


def test_writing_is_refused_with_the_functional_way():
    x = us.tensor([1.0, 2.0])
    with pytest.raises(MutationError, match=r"t\.at\[index\]\.set"):
        x[0] = 5.0
    y = x
    y += 1.0
    assert x.tolist() == [1.0, 2.0] and y.tolist() == [2.0, 3.0]


def test_foreign_types_may_handle_an_operator_themselves():
    class Foreign:
        def __radd__(self, other):
            return "handled"

    assert us.tensor(1.0) + Foreign() == "handled"
    with pytest.raises(TypeError):
        us.tensor(1.0) + object()


# --- shapes and views -------------------------------------------------------------------------------------------------


def test_transposes_and_parts_are_numpys():
    data = np.arange(6.0).reshape(2, 3) + 1j
    z = us.tensor(data)
    np.testing.assert_array_equal(z.T.eval(), data.T)
    np.testing.assert_array_equal(z.mT.eval(), data.T)
    np.testing.assert_array_equal(z.H.eval(), data.conj().T)
    np.testing.assert_array_equal(z.real.eval(), data.real)
    np.testing.assert_array_equal(z.imag.eval(), data.imag)
    np.testing.assert_array_equal(z.reshape(3, 2).eval(), data.reshape(3, 2))
    np.testing.assert_array_equal(z.reshape((3, -1)).eval(), data.reshape(3, 2))
    np.testing.assert_array_equal(z.transpose(1, 0).eval(), data.T)
    np.testing.assert_array_equal(z.transpose().eval(), data.T)
    np.testing.assert_array_equal(z.flatten().eval(), data.flatten())
    assert us.tensor(np.zeros((0, 3))).flatten().shape == (0,)


# --- loops that look at values ----------------------------------------------------------------------------------------


def kernels_per_step(steps, read):
    """Run a normalising loop that reads something every step; return kernel counts of two lengths."""
    a = us.tensor(np.array([[2.0, 1.0], [1.0, 3.0]]))
    x = us.tensor([1.0, 0.5])
    with us.debug.count_kernels() as counts:
        for _ in range(steps):
            y = us.sum(a * x, axis=1)
            norm = us.sqrt(us.sum(y * y))
            x = y / norm
            read(x, norm)
        x.eval()
    return counts, x


STYLES = {
    "reads the state": lambda x, norm: x.eval(),
    "reads only a norm": lambda x, norm: float(norm),
    "reads nothing till the end": lambda x, norm: None,
    "reads both": lambda x, norm: (float(norm), x.eval()),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_loop_of_k_steps_that_reads_every_step_runs_k_steps(style):
    for steps in (1, 10, 50):
        counts, x = kernels_per_step(steps, STYLES[style])
        assert counts.total == 6 * steps
        assert set(counts.by_node.values()) == {1}
    reference = np.linalg.eigh([[2.0, 1.0], [1.0, 3.0]])[1][:, 1]
    np.testing.assert_allclose(np.abs(x.eval()), np.abs(reference), rtol=1e-12)


def test_all_styles_give_the_same_bits():
    results = [kernels_per_step(7, read)[1].eval() for read in STYLES.values()]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_a_gradient_through_a_loop_that_was_read_equals_one_that_was_not():
    def loop(read):
        x = us.tensor([1.0, 2.0])
        y = x
        for _ in range(5):
            y = us.sin(y) * x + y
            if read:
                float(y.sum())
        return us.sum(y).grad(x).eval()

    np.testing.assert_array_equal(loop(read=True), loop(read=False))
