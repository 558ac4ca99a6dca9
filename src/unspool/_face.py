"""Gives tensors what they ask of the layers above theirs, each imported when it is first asked for.

`unspool._above` declares what that is. A program that never differentiates does not load the sweeps, and one that only
records does not load the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unspool._above import above

if TYPE_CHECKING:
    from unspool._engine.engine import Evaluator
    from unspool._tensor import Tensor


def serve_tensors(namespace: ModuleType) -> None:
    """Enter what tensors ask for; the namespace is the package users import."""
    above.namespace = namespace
    above.engine = _engine
    above.gradient = _gradient
    above.call_ufunc = _call_ufunc
    above.call_function = _call_function
    above.report = _report
    above.iterate_spooled = _iterate_spooled


def _engine() -> Evaluator:
    from unspool._engine.default import default_engine

    above.engine = default_engine  # from now on without coming here
    return default_engine()


def _gradient(*arguments: Any) -> Any:
    from unspool._autodiff.sweeps.gradient import gradient_of

    def gradient(loss: Tensor, wrt: Any, options: Mapping[str, Any], memory: Any, checkpoint: Any) -> Any:
        if memory is None and checkpoint is None:
            return gradient_of(loss, wrt, **options)
        from unspool._autodiff.sweeps.budgeted import budgeted_gradient

        return budgeted_gradient(loss, wrt, options, memory, checkpoint)

    above.gradient = gradient
    return gradient(*arguments)


def _report(loss: Tensor, path: Any, **options: Any) -> Any:
    from unspool._report.report import report

    return report(loss, path, **options)


def _call_ufunc(*arguments: Any) -> Any:
    from unspool._numpy import call_ufunc

    above.call_ufunc = call_ufunc
    return call_ufunc(*arguments)


def _call_function(*arguments: Any) -> Any:
    from unspool._numpy import call_function

    above.call_function = call_function
    return call_function(*arguments)


def _iterate_spooled(*arguments: Any) -> Any:
    from unspool._saving.iterating import iterate_spooled

    above.iterate_spooled = iterate_spooled
    return iterate_spooled(*arguments)
