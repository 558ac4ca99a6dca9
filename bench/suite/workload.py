"""What a workload is made of: seeded data, the same computation written once for each library, and bars.

A workload is *forward, a value read in every step, and the gradient through the loop*. It is written as a problem, the
data made from the parameters of a size, and as forms, one for each library and way of writing it. Forms run in
processes of their own. Nothing is timed before all of them agree on value and gradient.

A worked example, whole, as it would stand in ``bench/suite/b0_squares.py``::

    '''B0: squaring numbers until they are small.'''

    from __future__ import annotations

    from collections.abc import Callable

    import numpy as np

    from bench.suite.workload import Bar, Form, Outcome, Workload, by_size, outcome


    def problem(n: int, tolerance: float) -> dict[str, object]:
        return {"start": np.random.default_rng(0).uniform(0.1, 0.9, n), "tolerance": tolerance}


    def plain(problem: dict[str, object]) -> Callable[[], Outcome]:
        import unspool as us                          # heavy imports inside ``make``, never above

        def run() -> Outcome:                         # one call is one measurement: forward and gradient
            start, steps = us.tensor(problem["start"]), 0
            x = start
            while float(us.max(x)) > problem["tolerance"]:
                x, steps = x * x, steps + 1
            loss = us.sum(x)
            return outcome(float(loss), us.grad(loss, start).numpy(), steps)

        return run


    def torch_eager(problem: dict[str, object]) -> Callable[[], Outcome]: ...


    def by_hand(problem: dict[str, object]) -> Callable[[], Outcome]: ...


    WORKLOAD = Workload(
        key="B0",
        title="squaring",
        sizes=by_size(n=(10, 100, 1000), tolerance=1e-3),
        problem=problem,
        forms=(
            Form("unspool, plain", "unspool", plain, "ours"),
            Form("PyTorch", "torch", torch_eager, "peer"),
            Form("JAX unrolled", "jax", unrolled, "peer", limits={"large": "would compile for minutes"}),
            Form("by hand", "numpy", by_hand, "limit"),
        ),
        bars=(Bar("PyTorch", 1 / 3), Bar("limit", 1.3)),   # 3 × faster than PyTorch, 1.3 × the time of the limit
    )

The suite sets one BLAS thread, one core and 64-bit JAX before a form is made. The first call, with any compilation, is
timed apart from the others, so ``make`` converts data and wraps functions in ``jit`` but calls nothing. A call has to
finish its work: results are read as NumPy arrays. Where a computation does not fit this protocol, export a ``Special``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

SIZES = ("small", "medium", "large")

# The size at which bars are decided, and the number of threads.
BAR_SIZE, BAR_THREADS = "medium", 1

# What a form needs installed, beside NumPy.
PACKAGES = {
    "unspool": ("unspool",),
    "torch": ("torch",),
    "jax": ("jax",),
    "equinox": ("jax", "equinox"),
    "autograd": ("autograd",),
    "numpy": (),
}

Kind = Literal["ours", "peer", "limit"]
Plot = Literal["bars", "growth", "budget", "kinds"]
Quantity = Literal["time", "memory", "first", "right"]


class Outcome(NamedTuple):
    """What a call computed: the value, the gradient in one row of numbers, and how many steps the loop took.

    A gradient of millions of numbers may be given as a fixed projection of it. ``steps`` is 0 if a form cannot tell.
    """

    value: float
    gradient: np.ndarray
    steps: int


def outcome(value: Any, gradient: Any, steps: int = 0) -> Outcome:
    """Return an outcome from whatever NumPy understands; a tuple or list of gradients is laid end to end."""
    parts: Iterable[Any] = gradient if isinstance(gradient, tuple | list) else (gradient,)
    return Outcome(float(value), np.concatenate([np.ravel(np.asarray(part)) for part in parts]), int(steps))


def by_size(**parameters: tuple[Any, Any, Any] | int | float) -> dict[str, dict[str, Any]]:
    """Return the parameters of the sizes, each given as a number for all sizes or as three of them.

    >>> by_size(n=(20, 60, 150), sweeps=30)["medium"]
    {'n': 60, 'sweeps': 30}
    """
    return {
        size: {name: given[place] if isinstance(given, tuple) else given for name, given in parameters.items()}
        for place, size in enumerate(SIZES)
    }


class Reference(NamedTuple):
    """A value and a gradient known from elsewhere, ``None`` where it is not known, and how close they are to be."""

    value: float | None
    gradient: np.ndarray | None
    tolerance: float


@dataclass(frozen=True)
class Form:
    """One way of writing the computation.

    ``kind`` is "ours", "peer", or "limit" for an adjoint by hand. ``reason`` says why the form cannot do the work at
    all, and ``limits`` why it cannot at some sizes; it is shown instead of a time. A form of a peer that is known to go
    wrong here is marked ``flawed``: a finite answer that disagrees is then shown as wrong, where it would else be an
    error. NaN and exceptions of peers are shown as such anyway.
    """

    name: str
    library: str
    make: Callable[[Any], Callable[[], Outcome]]
    kind: Kind
    reason: str = ""
    limits: dict[str, str] = field(default_factory=dict)
    flawed: bool = False

    def why_not(self, size: str) -> str:
        """Return why the form cannot run at this size, or an empty string."""
        return self.reason or self.limits.get(size, "")


@dataclass(frozen=True)
class Bar:
    """A limit on ours divided by theirs: ``Bar("PyTorch", 1 / 3)`` asks for a third of the time of PyTorch.

    ``against`` is the name of a form, "peer" for the fastest peer, or "limit" for the fastest limit. ``ours`` is the
    name of a form of ours; without it, the fastest. "memory" compares the resident growth of those very forms and,
    where both tell, their live bytes; each has to keep to the bar. "right" asks that ours be right and that the forms
    named by ``against``, separated by semicolons, return NaN or something wrong; ``most`` is not used. ``case`` picks
    the rows of a ``Special``, at the largest ``x``. A bar is decided at medium size on one core.
    """

    against: str
    most: float = 1.0
    quantity: Quantity = "time"
    ours: str = ""
    case: str = ""


@dataclass(frozen=True)
class Workload:
    """A problem, the forms that solve it, and what is asked of ours.

    ``sizes`` has the parameters of ``problem`` by size. ``reference`` gives what is known of the answer, from the
    problem. ``tolerance`` is how closely value and gradient of all forms have to agree, relative to their size. A
    workload that is not the ``WORKLOAD`` of the module named after its key says in ``where`` how a process finds it:
    "bench.suite.b11_growth:POWER".
    """

    key: str
    title: str
    sizes: dict[str, dict[str, Any]]
    problem: Callable[..., Any]
    forms: tuple[Form, ...]
    reference: Callable[[Any], Reference] | None = None
    bars: tuple[Bar, ...] = ()
    tolerance: float = 1e-8
    where: str = ""


# --- what is measured -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """How to measure: the options of ``run.py``.

    ``seconds`` is what one workload may take, and as much as half of that again if it must; a special that measures
    several times divides it. ``rounds`` is the most rounds, fewer if time runs out. ``clock`` is "wall", or "processor"
    for the time that the process had the core, which tells more on a machine that others use as well.
    """

    size: str = "medium"
    threads: int = 1
    rounds: int = 15
    seconds: float = 100.0
    quick: bool = False
    clock: Literal["wall", "processor"] = "wall"


@dataclass(frozen=True)
class Row:
    """What was measured of one form: seconds, bytes, and the state, which is "ok" or what to show instead.

    ``state`` is "ok", "NaN", "wrong", "missing" for a library that is not installed, "cannot", "failed" for an
    exception, or "slow" for no answer in time; ``note`` says more. ``low`` and ``high`` are the quartiles of
    ``seconds``, the median. ``first`` is the first call. ``busy`` is the time by the wall for each second that the
    process had the core: 1 if nobody else wanted it. ``live`` is the peak of live bytes, if the library tells;
    ``resident`` is what the process grew by.

    ``case`` and ``x`` are for specials. Rows of one case make a table, or one table for each ``x`` if all of them have
    one. Where curves are drawn, rows of one case and one form make a curve; a row without an ``x`` is a level.
    """

    workload: str
    form: str
    library: str
    kind: Kind
    size: str = "medium"
    case: str = ""
    x: float | None = None
    state: str = "ok"
    note: str = ""
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    busy: float | None = None
    first: float | None = None
    live: int | None = None
    resident: int | None = None
    steps: int = 0
    value: float | None = None


@dataclass(frozen=True)
class Special:
    """A workload with a protocol of its own: ``run(options)`` measures and returns rows.

    ``bench.suite.measure.measure(workload, options, parameters, case=…, x=…)`` is the common protocol, for a special
    that runs it at many points. ``plot`` chooses the picture: "bars" of time and memory, "growth" of both
    against ``x``, with a line for each form, "budget", the same with ``x`` the budget as a share, or "kinds", the
    ratios of all cases. ``axis`` names ``x``. ``glance`` has the cases that stand for the workload where all workloads
    are shown together; without it, all of them.
    """

    key: str
    title: str
    run: Callable[[Options], list[Row]]
    bars: tuple[Bar, ...] = ()
    plot: Plot = "bars"
    axis: str = ""
    glance: tuple[str, ...] = ()
