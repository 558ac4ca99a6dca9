"""Bars: what is asked of ours beside a peer or the limit, and whether the measured rows keep to it.

Every bar comes to something: it is met, missed, or not shown, with its numbers or with the reason. What was not
measured decides nothing. The exception is a form of ours that did not answer in time where the other did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.suite.report import STATES, Amount, at_the_end, duration, fastest, ratio, volume
from bench.suite.workload import BAR_SIZE, BAR_THREADS, Bar, Options, Row, Special, Workload

State = Literal["met", "missed", "not shown"]

ROLES = {"peer": " (best peer)", "limit": " (limit)"}

# What a bar compares, and what that is called.
AMOUNTS: dict[str, tuple[Amount, ...]] = {"time": ("seconds",), "first": ("first",), "memory": ("resident", "live")}
NAMES: dict[Amount, str] = {
    "seconds": "time",
    "first": "first call",
    "resident": "memory by growth of the process",
    "live": "memory by live bytes",
}


@dataclass(frozen=True)
class Verdict:
    """A bar and what came of it: ours divided by theirs, the most it may be, and both numbers or the reason."""

    workload: str
    what: str
    state: State
    measured: float | None = None
    most: float | None = None
    numbers: str = ""

    def __str__(self) -> str:
        state = "MISSED" if self.state == "missed" else self.state
        compared = "" if self.measured is None else f"{self.measured:.2f} × of at most {self.most:.2f} ×"
        return f"  {state:<10}{self.workload:<5}{self.what:<80}  {compared:<25} {self.numbers}".rstrip()


def judge(workload: Workload | Special, rows: Sequence[Row], options: Options) -> list[Verdict]:
    """Decide the bars of a workload; they are meant for one size and one core."""
    if (options.size, options.threads) != (BAR_SIZE, BAR_THREADS) or options.quick:
        return unmeasured(workload, f"decided at {BAR_SIZE} size on one core")
    return [verdict for bar in workload.bars for verdict in _decide(workload.key, bar, rows)]


def unmeasured(workload: Workload | Special, why: str) -> list[Verdict]:
    """Return all bars of a workload as not shown, with the reason."""
    return [
        Verdict(workload.key, _wording(bar, AMOUNTS.get(bar.quantity, ("seconds",))[0]), "not shown", numbers=why)
        for bar in workload.bars
    ]


def _decide(key: str, bar: Bar, rows: Sequence[Row]) -> list[Verdict]:
    """Return what comes of a bar: one verdict, or two where memory is told in two ways."""
    rows = at_the_end(row for row in rows if not bar.case or row.case == bar.case)
    if bar.quantity == "right":
        return [_decide_right(key, bar, rows)]
    ours = _named(rows, bar.ours) if bar.ours else fastest(rows, "ours")
    theirs = fastest(rows, bar.against) if bar.against in ROLES else _named(rows, bar.against)
    first, *others = AMOUNTS[bar.quantity]
    told = [amount for amount in others if ratio(ours, theirs, amount) is not None]
    return [_compare(key, bar, amount, rows, ours, theirs) for amount in (first, *told)]


def _compare(key: str, bar: Bar, amount: Amount, rows: Sequence[Row], ours: Row | None, theirs: Row | None) -> Verdict:
    what, measured = _wording(bar, amount, ours, theirs), ratio(ours, theirs, amount)
    if measured is not None:
        numbers = " and ".join(_text(getattr(row, amount), amount) for row in (ours, theirs))
        return Verdict(key, what, "met" if measured <= bar.most else "missed", measured, bar.most, numbers)
    late = [row for row in rows if row.kind == "ours" and row.state == "slow" and bar.ours in ("", row.form)]
    if ours is None and theirs is not None and late:
        return Verdict(key, what, "missed", numbers=f"{late[0].form}: {late[0].note}")
    return Verdict(key, what, "not shown", numbers=_why_not(bar, rows, ours, theirs))


def _decide_right(key: str, bar: Bar, rows: Sequence[Row]) -> Verdict:
    """Ours must be right and those named must not; whoever gave no answer shows nothing."""
    ours = [row.state for row in rows if row.kind == "ours"]
    names = [name.strip() for name in bar.against.split(";") if name.strip()]
    others = {row.form: row.state for row in rows if row.form in names}
    told = ", ".join(f"{form} {STATES.get(state, 'right')}" for form, state in others.items())
    if not set(ours) <= {"ok", "slow"} or "ok" in others.values():
        state: State = "missed"
    else:
        shown = set(ours) == {"ok"} and len(others) == len(names) and set(others.values()) <= {"NaN", "wrong"}
        state = "met" if shown else "not shown"
    return Verdict(key, _wording(bar, "seconds"), state, numbers=told)


# --- words ------------------------------------------------------------------------------------------------------------


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row.form == name and row.state == "ok"), None)


def _wording(bar: Bar, amount: Amount, ours: Row | None = None, theirs: Row | None = None) -> str:
    case = f", {bar.case}" if bar.case else ""
    if bar.quantity == "right":
        return "ours is right where others with their own rules are not" + case
    against = theirs.form if theirs else {"peer": "a peer", "limit": "by hand"}.get(bar.against, bar.against)
    named = ours.form if ours else bar.ours or "ours"
    return f"{NAMES[amount]}: {named} beside {against}{ROLES.get(bar.against, '')}{case}"


def _text(number: float, amount: Amount) -> str:
    return duration(number) if amount in ("seconds", "first") else volume(int(number))


def _why_not(bar: Bar, rows: Sequence[Row], ours: Row | None, theirs: Row | None) -> str:
    """Say whose number is missing, and why if its row tells."""
    if ours is not None and theirs is not None:
        return "not measured"
    wanted = (bar.ours or "ours") if ours is None else bar.against
    states = [
        f"{row.form} {STATES[row.state]}" for row in rows if wanted in (row.form, row.kind) and row.state in STATES
    ]
    return ", ".join(dict.fromkeys(states)) or f"no row of {wanted}"
