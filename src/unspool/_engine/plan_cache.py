"""Plans by fragment and sizes: a bounded cache, the least recently used ones leave first.

What is found of whole loops, which have plans inside, is kept beside them.

Shapes that change at every call (a growing bond dimension) make a plan each; without a bound they would pile up. A plan
that has left stays valid for whoever holds it, a call for instance.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from unspool._locks import Lock

if TYPE_CHECKING:
    from unspool._engine.backends.base import Backend
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment
    from unspool._statistics import Statistics

CAPACITY = 2048


class PlanCache:
    """Keeps at most ``capacity`` plans, which run on one backend."""

    def __init__(self, statistics: Statistics, capacity: int = CAPACITY, backend: Backend | None = None) -> None:
        self.capacity = capacity
        if backend is not None:
            self.backend = backend
        self._statistics = statistics
        self._plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
        self._loops: dict[Any, dict[Any, Any]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    @cached_property
    def backend(self) -> Backend:
        """What its plans run on: the native one, if no other was given."""
        from unspool._engine.backends.native_backend import NATIVE

        return NATIVE

    def plan_for(self, fragment: Fragment, shapes: tuple[Any, ...]) -> Plan:
        """Return the plan of a fragment for inputs of the given shapes."""
        key = (fragment.id, shapes)
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
                self._statistics.plan_hits += 1
                return plan
            self._statistics.plan_misses += 1
        from unspool._engine.plan import make_plan

        made = make_plan(fragment, shapes, self.backend)
        with self._lock:
            plan = self._plans.setdefault(key, made)
            while len(self._plans) > self.capacity:
                self._plans.popitem(last=False)
        return plan

    def known_of(self, loop: Any) -> dict[Any, Any]:
        """Return what is known of a loop, given as something that equal loops on inputs of equal sizes share."""
        known = self._loops.get(loop)
        if known is None:
            with self._lock:
                known = self._loops.setdefault(loop, {})
                while len(self._loops) > self.capacity:
                    del self._loops[next(iter(self._loops))]
        return known

    def clear(self) -> None:
        """Forget all plans."""
        with self._lock:
            self._plans.clear()
            self._loops.clear()
