"""What the loops share that show how far they are: `progress=True` is a line of `unspool.progress` around them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import unspool as us

F = TypeVar("F", bound=Callable[..., Any])


def shows_progress(unit: str, total: str | None = None) -> Callable[[F], F]:
    """Decorate a loop that calls ``on_step``, so that ``progress=True`` shows its steps and what it reads in each.

    ``unit`` is what they are called; ``total`` the parameter that tells how many there will be, for a loop that does
    not stop by itself.
    """

    def decorate(loop: F) -> F:
        default = None if total is None else inspect.signature(loop).parameters[total].default

        @wraps(loop)
        def run(*args: Any, **options: Any) -> Any:
            if not options.get("progress"):
                return loop(*args, **options)
            count = None if total is None else options.get(total, default)
            on_step = options.get("on_step")
            line: us.progress[Any] = us.progress(total=count if isinstance(count, int) else None, unit=unit)
            with line:

                def show(step: int, state: Any, values: Mapping[str, float]) -> None:
                    line.show(step, values)
                    if on_step is not None:
                        on_step(step, state, values)

                return loop(*args, **{**options, "on_step": show})

        return run  # type: ignore[return-value]

    return decorate
