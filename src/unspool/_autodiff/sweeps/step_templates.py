"""Noting a step of a derivative in few instructions: for steps that look alike there is a table.

A gradient through K calls of one plan notes K steps (`chain`). Which inputs of a step come from where, and where its
outputs go, follows from the derivative and from the types of what arrives. So it is worked out once and kept as a note
(`notes.c`); in a loop, a step costs little more than the objects that stand for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._autodiff.sweeps.accumulation import LAZY, Sum, form_of, merge
from unspool._autodiff.sweeps.factored import Factored
from unspool._core import Pending
from unspool._fragments.call import output

if TYPE_CHECKING:
    from unspool._autodiff.sweeps.calls import Derivative
    from unspool._core import Note


def keep_note(
    derivatives: dict[Any, Any],
    active: tuple[bool, ...],
    derivative: Derivative,
    arriving: Sequence[Any],
    whole: Sequence[int],
) -> None:
    """Keep the note for steps at which the like of this arrives, if there can be one, for `calls.pull_call`.

    It is found by the types of what arrives. If there are tensors among it, a dict is, in which it is found by their
    forms; it is made when the types are met for the second time, since the last steps of a loop look like no others.
    ``whole`` are the inputs at which masked tensors enter as they are, whatever they are.
    """
    types, forms = tuple(map(type, arriving)), tuple(map(form_of, arriving))
    if not _can_be_noted(derivative, forms, whole):
        return
    pattern = (active, *types)
    known = derivatives.get(pattern)
    if LAZY.issuperset(types):
        if known is None:
            derivatives[pattern] = _make_note(derivative, types, forms)
    elif known is None:
        derivatives[pattern] = {}
    elif forms not in known:
        known[forms] = _make_note(derivative, types, forms)


def _can_be_noted(derivative: Derivative, forms: Sequence[Any], whole: Sequence[int]) -> bool:
    """Whether there can be a note for a derivative and the forms of what arrives.

    A masked tensor that arrives at any other input may be rows of a table, which stay outside: it has to be looked at.
    """
    before = forms[len(forms) - len(derivative.results) :]
    return (
        bool(derivative.plan.fragment.outputs)
        and not any(type(form) is tuple and i not in whole for i, form in enumerate(before))
        and not any(form is not None and _is_masked(form) for form in derivative.results)
    )


def _is_masked(form: tuple[Any, ...]) -> bool:
    """Whether a result is masked, or a term of it is: a mask is a node, which cannot be made before the step is."""
    return any(map(_is_masked, form[1:])) if form[0] == "terms" else form[0] == "masked"


def _make_note(derivative: Derivative, types: Sequence[type], forms: Sequence[Any]) -> Note:
    """Return the note for calls at which what has such types and forms arrives: at the outputs, then at the inputs.

    It does what `calls.pull_call` does in general.
    """
    sources: list[tuple[str, Any]] = []
    read: list[int] = []
    for i, (kind, position) in enumerate(derivative.sources):
        is_masked = kind == "number" and type(forms[position]) is tuple
        sources.append(("masked" if is_masked else kind, position))
        if kind == "number" and types[position] is Pending:
            read.append(i)
    results = derivative.results
    outputs = len(types) - len(results)
    kept = tuple(sources), tuple(read), results
    return _core.note(derivative.plan, outputs, *kept, Factored, Sum, merge, output)
