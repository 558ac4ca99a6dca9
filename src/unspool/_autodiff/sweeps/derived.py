"""What is derived from a plan is derived once, and again if a rule of the user's reads something else now.

The one idea: the derivative of a body is built by rules, and kept. The rules of unspool depend on the body alone; one
that a user wrote (`custom_vjp`, `custom_jvp`, `op`) is Python code that may read anything. So such rules are watched,
as a traced function is, and what they read is kept beside what was derived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.captured_state import Surroundings

# What the rules read that ran since something began to be derived; None outside.
_read: ContextVar[list[Surroundings] | None] = ContextVar("unspool_read_by_rules", default=None)

# Under this key a plan has what was read for those of its derivatives for which rules of users ran.
_BY_RULES = "read by rules"


def derive_once(plan: Plan | None, key: Any, derive: Callable[[], Any]) -> Any:
    """Return what a plan has under a key; derived now if there is nothing, or if it would be something else now."""
    if plan is None:
        return derive()
    derivatives = plan.derivatives
    found = derivatives.get(key)
    by_rules: dict[Any, list[Surroundings]] | None = derivatives.get(_BY_RULES)
    if found is not None:
        if by_rules is None or key not in by_rules:
            return found
        if all(read.are_unchanged() for read in by_rules[key]):
            _pass_on(by_rules[key])
            return found
    with rules_of_users() as read:
        found = derive()
    derivatives[key] = found
    if read:
        derivatives.setdefault(_BY_RULES, {})[key] = read
    elif by_rules is not None:
        by_rules.pop(key, None)
    return found


def depends_on_rules(plan: Plan, key: Any) -> bool:
    """Whether rules of users had a part in what a plan has under a key, so that it may have to be derived again."""
    return key in plan.derivatives.get(_BY_RULES, ())


@contextmanager
def rules_of_users() -> Iterator[list[Surroundings]]:
    """Give what rules of users read that run in the block: nothing, if none does."""
    read: list[Surroundings] = []
    token = _read.set(read)
    try:
        yield read
    finally:
        _read.reset(token)
        _pass_on(read)


def run_rule(rule: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a rule of a user's, which belongs to ``owner``; watch it if what it builds will be kept."""
    read = _read.get()
    if read is None:
        return rule(*args, **kwargs)
    from unspool._fragments.watching import Watch

    for again in (False, True):
        with Watch(rule, (owner,)) as watch:
            result = rule(*args, **kwargs)
        surroundings = watch.surroundings((), again=again)
        if surroundings is not None:
            read.append(surroundings)
            break
    return result


def _pass_on(read: Iterable[Surroundings]) -> None:
    """Let what is being derived around this know."""
    around = _read.get()
    if around is not None:
        around += read
