"""`unspool.Engine`: an engine with a budget of its own, beside the one that ``eval()`` uses.

Engines differ in what they hold and evict. What they know about programs, they share: a loop that one of them has
learned to run is known to all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._engine.budget import counters, limit_memory, report_since
from unspool._engine.default import default_engine
from unspool._engine.evaluate import evaluate_with
from unspool._engine.memory.background import check_pool
from unspool._engine.memory.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unspool._engine.memory.report import MemoryReport
    from unspool._tensor import Tensor


class Engine:
    """Computes tensors within a budget of its own.

    ``eval()``, ``float()`` and everything else that looks at a value use the default engine, whose budget
    `unspool.memory` and `unspool.set_memory` set. An engine computes what its own `eval` is asked for, and its budget
    covers what it has computed.

    Parameters
    ----------
    memory : str, int or float, optional
        The budget, as in `unspool.memory`; one that cannot work raises `BudgetError`. Without it, it is half of the
        memory that is available to the process, exceeded rather than refused where it cannot be kept.
    pool : object with submit, optional
        A pool of threads that recompute steps while others are used, as in `unspool.memory`. It has to be there when
        gradients are evaluated; one that is closed by then costs time only.

    Notes
    -----
    Values live on the tensors, so engines see each other's. What one has computed another does not compute again, and
    what one evicts is gone for all of them until it is asked for. Who asks computes it, within its own budget: a
    gradient that should keep to the budget of an engine is evaluated by that engine, and so is the loop before it.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> engine = us.Engine(memory="1MB")
    >>> A = us.tensor(np.eye(64) * 0.5)
    >>> x = us.ones((64, 64))
    >>> for k in range(200):
    ...     x = us.tanh(A @ x) + 1.0
    ...     if engine.eval(us.max(abs(x))) > 1e3:
    ...         break
    >>> slope = engine.eval(us.sum(x).grad(A))
    >>> engine.report().peak <= engine.memory
    True
    """

    def __init__(self, memory: str | int | float | None = None, *, pool: Any = None) -> None:
        check_pool(pool, "us.Engine")
        self._evaluator = default_engine().beside()
        self._evaluator.ledger.pool = pool
        limit_memory(self._evaluator.ledger, memory)
        self._started = counters(self._evaluator.ledger)

    @property
    def memory(self) -> int:
        """The budget in bytes.

        Examples
        --------
        >>> import unspool as us
        >>> us.Engine(memory="1.5GiB").memory
        1610612736
        """
        return self._evaluator.ledger.limit

    def eval(self, *trees: Any, bindings: Mapping[Tensor, Any] | None = None) -> Any:
        """Compute tensors together; takes and returns what `unspool.eval` does.

        Raises
        ------
        BudgetError
            If a budget was given and cannot be kept; the error names the least that can.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor([1.0, 2.0])
        >>> loss = us.sum(x * x)
        >>> us.Engine().eval(loss, {"gradient": loss.grad(x)})
        (array(5.), {'gradient': array([2., 4.])})
        """
        return evaluate_with(self._evaluator, trees, bindings)

    def report(self) -> MemoryReport:
        """Return what keeping to the budget took so far.

        Examples
        --------
        >>> import unspool as us
        >>> engine = us.Engine(memory="1GB")
        >>> engine.eval(us.sum(us.ones(1000)))
        array(1000.)
        >>> report = engine.report()
        >>> report.budget, report.evictions
        (1000000000, 0)
        """
        return report_since(self._evaluator.ledger, self._started, self.memory)

    def __repr__(self) -> str:
        return f"<Engine with a memory budget of {format_bytes(self.memory)}>"
