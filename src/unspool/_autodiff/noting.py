"""Noting a step of a derivative in few instructions: the function for steps that look alike is generated.

A gradient through K calls of one plan notes K steps (`chain`). Which inputs of a step come from where, and where its
outputs go, follows from the derivative and from the types of what arrives. So it is worked out once and written down as
straight-line Python; in a loop, a step costs little more than the objects that stand for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._autodiff.accumulation import Factored, Sum, merge
from unspool._autodiff.chain import Pending
from unspool._fragments.call import output
from unspool._ops.contraction.contract import CONTRACT
from unspool._ops.elementwise import MASK

if TYPE_CHECKING:
    from unspool._autodiff.calls import Derivative
    from unspool._engine.plan import Plan

# What arrives at a call in the midst of a loop: nothing, outputs of earlier steps, sums that are not added up.
LAZY = frozenset({type(None), Pending, Sum, Factored})

Note = Callable[[Any, Any, list[Any], dict[int, Any]], None]


def form_of(value: Any) -> Any:
    """Return what a note depends on of something that arrives, beside its type: of a tensor, how it is masked or made.

    A product of which the factors would be kept tells itself apart by its subscripts.
    """
    if type(value) in LAZY:
        return None
    if value.op is MASK:
        return (value.inputs[1].shape,)
    return value.attributes["subscripts"] if value.op is CONTRACT else True


def keep_note(
    derivatives: dict[Any, Any],
    active: tuple[bool, ...],
    derivative: Derivative,
    arriving: Sequence[Any],
    whole: Sequence[int],
) -> None:
    """Keep the function that notes steps at which the like of this arrives, if there can be one, for `calls.pull_call`.

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
    """Whether a function can be generated for a derivative and the forms of what arrives.

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
    """Generate the function that notes a step of a derivative, ``note(call, inputs, arriving, arrived)``.

    What arrives has the given types and forms: at the outputs of the call, then at its inputs. The function does what
    `calls.pull_call` does in general.
    """
    writer = _Writer(derivative.plan)
    writer.write_step(derivative.sources, types, forms)
    first = len(types) - len(derivative.results)
    for position, form in enumerate(derivative.results):
        writer.write_result(position, form, types[first + position], f"arriving[{first + position}]")
    return writer.compile()


class _Writer:
    """The lines of the function, and the names that they use."""

    def __init__(self, plan: Plan) -> None:
        self._bound: dict[str, Any] = {"plan": plan, "note_step": _core.step, "pending": _core.pending}
        self._bound |= {"Factored": Factored, "Sum": Sum, "merge": merge, "output": output}
        self._lines: list[str] = []
        self._made: list[int] = []

    def write_step(self, sources: Sequence[tuple[str, Any]], types: Sequence[type], forms: Sequence[Any]) -> None:
        """Write what makes the step."""
        reading = {"input": "inputs[{}]", "number": "arriving[{}]", "output": "output(call, {})"}
        reading |= {"masked": "arriving[{}].inputs[0]", "keep": "arriving[{}].inputs[1]"}
        texts: list[str] = []
        read: list[int] = []
        for i, (kind, position) in enumerate(sources):
            if kind == "node":
                self._bound[f"node{i}"] = position
                texts.append(f"node{i}")
            else:
                is_masked = kind == "number" and type(forms[position]) is tuple
                texts.append(reading["masked" if is_masked else kind].format(position))
            if kind == "number" and types[position] is Pending:
                read.append(i)
        self._bound["read"] = tuple(read)
        self._lines.append(f"step = note_step(plan, [{', '.join(texts)}], read, made)")

    def write_result(self, position: int, form: tuple[Any, ...] | None, kind: type, before: str) -> None:
        """Write what arrives at an input of the call."""
        if form is None:
            if kind is type(None):
                return
            text = f"({before} if {before}.terms else None)" if kind is Sum else before
        elif kind is Sum:
            self._lines.append(f"{before}.terms += [{', '.join(map(self._term, form[1:]))}]")
            text = before
        else:
            text = f"merge({before}, {self._term(form)})" if kind is Factored else self._term(form)
        self._lines += [f"key = inputs[{position}].id", f"given = {text}", "earlier = arrived.get(key)"]
        self._lines += ["if given is not None:"] if form is None and kind is Sum else []
        indent = "    " if form is None and kind is Sum else ""
        self._lines += [f"{indent}arrived[key] = given if earlier is None else merge(earlier, given)"]

    def _term(self, form: tuple[Any, ...]) -> str:
        """Return the expression for a result."""
        if form[0] == "terms":
            return f"Sum({', '.join(map(self._term, form[1:]))})"
        if form[0] == "plain":
            return self._pending(form[1])
        name = f"form{len(self._made)}"
        self._bound[name] = form[1]
        return f"Factored({name}, ({''.join(f'{self._pending(index)}, ' for index in form[2:])}))"

    def _pending(self, index: int) -> str:
        """Write what makes a `Pending`, and return its name."""
        name = f"pending{len(self._made)}"
        self._made.append(index)
        self._lines.append(f"{name} = pending(step, {index})")
        return name

    def compile(self) -> Note:
        """Return the function."""
        self._bound["made"] = tuple(self._made)
        body = "\n".join(f"    {line}" for line in self._lines)
        from unspool._engine.generated import compile_function

        note: Note = compile_function("note", f"def note(call, inputs, arriving, arrived):\n{body}\n", self._bound)
        return note
