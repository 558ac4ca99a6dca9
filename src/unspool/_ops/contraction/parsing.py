"""Reading einsum's subscripts: what the user wrote becomes one label per axis.

Labels are letters (or the integers of the interleaved form); an axis that an ellipsis stands for is labelled by its
distance from the right end of the ellipsis, so that such axes line up as broadcasting has it. Everything here depends
on the text and the numbers of axes alone, so it is done once and remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import EllipsisType
from typing import Any, TypeAlias

from unspool._ops.contraction.contract import Form, form_of
from unspool.errors import ShapeError

# A letter, an integer of the interleaved form, or ("...", distance from the right).
Label: TypeAlias = str | int | tuple[str, int]
Token: TypeAlias = str | int | EllipsisType
Tokens: TypeAlias = tuple[Token, ...]


class Subscripts:
    """The labels of every operand and of the result; ``form`` if this is a plain contraction of two operands."""

    __slots__ = ("form", "inputs", "output", "text")

    def __init__(
        self, text: str, inputs: tuple[tuple[Label, ...], ...], output: tuple[Label, ...], form: Form | None
    ) -> None:
        self.text, self.inputs, self.output, self.form = text, inputs, output, form


@lru_cache(maxsize=2048)
def read_text(text: str, ranks: tuple[int, ...]) -> Subscripts:
    """Read subscripts such as ``"ij,jk->ik"`` for operands with the given numbers of axes."""
    operands, arrow, result = text.partition("->")
    inputs = tuple(_tokens(part) for part in operands.split(","))
    return _resolve(repr(text), inputs, _tokens(result) if arrow else None, ranks)


@lru_cache(maxsize=2048)
def read_lists(inputs: tuple[Tokens, ...], output: Tokens | None, ranks: tuple[int, ...]) -> Subscripts:
    """Read the interleaved form's lists of integers for operands with the given numbers of axes."""
    text = ", ".join(_list_text(tokens) for tokens in inputs)
    return _resolve(text if output is None else f"{text} -> {_list_text(output)}", inputs, output, ranks)


def as_tokens(sublist: Any) -> Tokens:
    """Return one list of the interleaved form, checked."""
    if not isinstance(sublist, (list, tuple)):
        raise ShapeError(f"einsum's interleaved form has a list of labels after each operand, got {sublist!r}")
    tokens: list[Token] = []
    for entry in sublist:
        if entry is not Ellipsis and not hasattr(entry, "__index__"):
            raise ShapeError(f"labels of einsum's interleaved form are integers or ..., got {entry!r}")
        tokens.append(Ellipsis if entry is Ellipsis else entry.__index__())
    return tuple(tokens)


def _tokens(part: str) -> Tokens:
    tokens: list[Token] = []
    rest = part.replace(" ", "")
    while rest:
        if rest.startswith("..."):
            tokens.append(Ellipsis)
            rest = rest[3:]
        elif rest[0].isalpha():
            tokens.append(rest[0])
            rest = rest[1:]
        else:
            raise ShapeError(f"{rest[0]!r} is neither a letter nor part of '...' nor '->'")
    return tuple(tokens)


def _resolve(text: str, inputs: tuple[Tokens, ...], output: Tokens | None, ranks: tuple[int, ...]) -> Subscripts:
    if len(inputs) != len(ranks):
        raise ShapeError(f"the subscripts are for {len(inputs)} operands, {len(ranks)} were given")
    if not inputs:
        raise ShapeError("einsum takes at least one operand, got none")
    labels = tuple(
        _expand(tokens, _hidden_axes(position, tokens, rank))
        for position, (tokens, rank) in enumerate(zip(inputs, ranks, strict=True))
    )
    hidden = max(len([label for label in term if isinstance(label, tuple)]) for term in labels)
    result = _implicit_output(inputs, hidden) if output is None else _check_output(output, hidden, labels)
    return Subscripts(text, labels, result, _plain_form(labels, result))


def _hidden_axes(position: int, tokens: Tokens, rank: int) -> int:
    """Return how many axes the ellipsis of an operand stands for."""
    dots, named = tokens.count(Ellipsis), len([token for token in tokens if token is not Ellipsis])
    if dots > 1:
        raise ShapeError(f"operand {position} has more than one '...'")
    if named > rank or (not dots and named < rank):
        raise ShapeError(f"operand {position} has {rank} axes and {named} labels")
    return rank - named


def _ellipsis(count: int) -> tuple[Label, ...]:
    return tuple(("...", distance) for distance in range(count, 0, -1))


def _expand(tokens: Tokens, hidden: int) -> tuple[Label, ...]:
    labels: list[Label] = []
    for token in tokens:
        labels.extend(_ellipsis(hidden) if isinstance(token, EllipsisType) else (token,))
    return tuple(labels)


def _implicit_output(inputs: Sequence[Tokens], hidden: int) -> tuple[Label, ...]:
    """Return the result's labels if none are given: those that occur once, in alphabetic (numeric) order."""
    every = [token for tokens in inputs for token in tokens if not isinstance(token, EllipsisType)]
    return (*_ellipsis(hidden), *sorted(token for token in every if every.count(token) == 1))


def _check_output(output: Tokens, hidden: int, inputs: tuple[tuple[Label, ...], ...]) -> tuple[Label, ...]:
    known = {label for labels in inputs for label in labels}
    for token in output:
        name = "..." if token is Ellipsis else token
        if output.count(token) > 1:
            raise ShapeError(f"the result has the label {name!r} more than once")
        if token is not Ellipsis and token not in known:
            raise ShapeError(f"the result has the label {name!r}, which no operand has")
    if hidden and Ellipsis not in output:
        raise ShapeError("'...' stands for axes of an operand, so the result needs '...' too")
    return _expand(output, hidden)


def _plain_form(inputs: tuple[tuple[Label, ...], ...], output: tuple[Label, ...]) -> Form | None:
    if len(inputs) != 2:
        return None
    first, second = inputs
    if len(set(first)) < len(first) or len(set(second)) < len(second):
        return None
    if any(label not in output and not (label in first and label in second) for label in (*first, *second)):
        return None
    return form_of(first, second, output)


def _list_text(tokens: Tokens) -> str:
    return "[" + ", ".join("..." if token is Ellipsis else str(token) for token in tokens) + "]"
