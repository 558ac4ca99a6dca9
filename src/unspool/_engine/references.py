"""Who else refers to an object: the references to it are counted, if this interpreter counts as is known.

The engine asks for two things. May an array be overwritten, because nobody else sees it? Has the value of a node to be
kept, because somebody may still ask for it? Both compare a count with the references that the code which asks has
itself: a variable, the list it came from, the argument of the counter. How many those are is a habit of the interpreter
and no promise of the language. CPython 3.14 passes variables without counting them, so that a count which used to mean
"only I" means "I and somebody else".

So the habits are measured once, in the very forms in which the engine counts. If all are as written here,
`count_references` is `sys.getrefcount`. If one is not, it answers that there are many. Then everything counts as
referred to from outside: nothing is overwritten, every value is kept, no loop is folded. That takes more memory, but no
value is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from unspool import _core
from unspool._records import NamedTuple

# The references that the code which counts has itself, in each form.
IN_A_VARIABLE = 2  # the variable and the argument of the counter
IN_A_LIST = 2  # the list and the argument of the counter, without a name
IN_A_LIST_AND_A_VARIABLE = 3
AS_AN_ARGUMENT = 3  # the caller's variable, the parameter, the argument of the counter
AS_ONE_OF_SEVERAL = 3  # the caller's variable, a variable, the argument of the counter; beside the tuple of arguments

# What a count is said to be where counting is of no use: more than there can be.
MANY = sys.maxsize

# The interpreter rewrites code that has run some times.
_TIMES = 10

Counter = Callable[[Any], int]


class Form(NamedTuple):
    """A way in which the engine counts, and what it has to find for an object that nobody else refers to."""

    measure: Callable[[Counter], int]
    expected: int

    def is_as_expected(self, counter: Counter) -> bool:
        """Whether a counter finds that, every time."""
        return all(self.measure(counter) == self.expected for _ in range(_TIMES))


def counter_for(counter: Counter) -> Counter:
    """Return a counter that can be relied on: the one that is given, if it finds in every form what it should."""
    return counter if all(form.is_as_expected(counter) for form in FORMS) else _many


def _many(_: object) -> int:
    return MANY


# --- the forms -------------------------------------------------------------------------------------------------------


class _Object:
    """Something that stands for a node, or for an array."""

    __slots__ = ("__weakref__", "inputs")

    def __init__(self, *inputs: _Object) -> None:
        self.inputs = inputs


def _popped(counter: Counter) -> int:
    """As `passes.c` does, which has no counter."""
    order = [_Object()]
    node = order.pop()
    return counter(node)


def _unpacked(counter: Counter) -> int:
    """As `matching.c` and `held.c` do, which have no variables."""
    last = _Object(_Object(), _Object())
    left, right = last.inputs
    return min(counter(left), counter(right))


def _from_a_tuple(counter: Counter) -> int:
    """As the checks of `folding.c` do, which have no variable, and `replayed_values.is_seen` of what an array views."""
    last = _Object(_Object())
    inputs = last.inputs
    node = inputs[0]
    return counter(node)


def _in_a_comprehension(counter: Counter) -> int:
    """As `interpreter.kept_nodes` does."""
    order = [_Object(), _Object()]
    return min([counter(node) for node in order])


def _in_a_list(counter: Counter) -> int:
    """As `repeated.kept_flags` does."""
    return min(map(counter, [_Object(), _Object()]))


def _an_argument(counter: Counter) -> int:
    """As `buffers.BufferPool.give` does."""
    array = _Object()
    return _of_an_argument(counter, array)


def _of_an_argument(counter: Counter, array: _Object) -> int:
    return counter(array)


def _one_of_several(counter: Counter) -> int:
    """As `buffers.BufferPool.fill` does."""
    array = _Object()
    return _of_one_of_several(counter, 0, array)


def _of_one_of_several(counter: Counter, position: int, *xs: _Object) -> int:
    x = xs[position]
    return counter(x)


def _of_a_list(counter: Counter) -> int:
    """As `replayed_values.is_seen` does."""
    values = [_Object()]
    arguments = [*values]
    return _of_an_argument(counter, arguments[0])


FORMS = (
    Form(_popped, IN_A_VARIABLE),
    Form(_unpacked, IN_A_VARIABLE + 1),
    Form(_from_a_tuple, IN_A_VARIABLE + 1),
    Form(_in_a_comprehension, IN_A_LIST_AND_A_VARIABLE),
    Form(_in_a_list, IN_A_LIST),
    Form(_an_argument, AS_AN_ARGUMENT),
    Form(_one_of_several, AS_ONE_OF_SEVERAL + 1),
    Form(_of_a_list, AS_AN_ARGUMENT + 1),
)

count_references: Counter = counter_for(sys.getrefcount)
_core.bind(can_count=count_references is sys.getrefcount)
