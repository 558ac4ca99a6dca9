"""What runs programs and loops: the one class that another array library would have to implement.

The engine and the sweeps decide what is computed, in which order, and what is kept. A backend computes it. It knows
nothing of nodes, derivatives and budgets, and only a backend knows what an array is made of. Everything that is
computed twice has to have the same bits both times, in a program, in a loop and op by op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.backends.whole_loop import Ends
    from unspool._engine.planning import Bound, Step
    from unspool._fragments.fragment import Fragment

Run = Callable[..., tuple[Any, ...]]
Drive = Callable[..., tuple[int, bool, list[Any], list[Any], list[Any]]]
WholeRun = Callable[[int, Sequence[Any]], tuple[Any, ...] | None]


class Lowered(NamedTuple):
    """A program for given sizes and dtypes: what a backend compiles.

    Attributes
    ----------
    fragment : Fragment
        What is computed. Slots are numbered as in it.
    bound : Bound
        The shape and dtype of every slot, and the parameters.
    steps : tuple of Step
    outputs : tuple of int
        The slots of the outputs.
    """

    fragment: Fragment
    bound: Bound
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


class Layout(NamedTuple):
    """What becomes of the inputs and outputs of a program that is the body of a loop.

    Attributes
    ----------
    constants, rows : int
        How many inputs of each kind it has.
    reads, assigns : tuple of int
        The registers among its inputs, and those that its first outputs are for.
    histories : tuple of int
        The outputs for registers of which all states are kept.
    written, sums : tuple of int
        The outputs that are written row by row, and those that are added up.
    watched : bool
        Whether the last output says when to stop.
    reverse : bool
        Whether indices fall.
    """

    constants: int
    reads: tuple[int, ...]
    rows: int
    assigns: tuple[int, ...]
    histories: tuple[int, ...]
    written: tuple[int, ...]
    sums: tuple[int, ...]
    watched: bool
    reverse: bool


class Backend(ABC):
    """Runs programs and steps of loops on arrays of one library."""

    # --- programs

    @abstractmethod
    def interpret(self, fragment: Fragment, bound: Bound, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Run a program once, as it stands: what costs least for one that does not run again."""

    @abstractmethod
    def compile(self, program: Lowered) -> Run:
        """Return a function of the input arrays that returns a tuple of the outputs; it writes into no argument."""

    @abstractmethod
    def compile_loop(self, program: Lowered, layout: Layout) -> Drive:
        """Return a function that makes steps of a loop, ``drive(indices, constants, carry, rows, …)``.

        Further arguments are the arrays of ``histories``, those that are ``written``, and the ``sums``. The carry has
        the registers that the program reads; rows are read and written by index. The array of a history has a row more
        than there are steps: what a step starts from is what the step before it ended with. The function returns the
        last index, whether the condition held, the registers that it assigned, those that it read in the last step, and
        the sums.
        """

    def compile_whole(self, drive: Drive, ends: Ends) -> WholeRun | None:
        """Return a function that makes all steps of a loop and the arrays they fill, ``run(steps, arrays)``.

        ``drive`` makes its steps. The function returns registers, stacks and sums, or ``None`` where it cannot do it
        for these arrays. There need not be one: it costs less than to do the same one by one.
        """
        return None

    @abstractmethod
    def source(self, program: Lowered, layout: Layout | None = None) -> str:
        """Return what a program does, or with a layout the loop it is the body of, as text for people."""

    # --- arrays

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array with arbitrary contents."""

    @abstractmethod
    def copy(self, array: Any) -> Any:
        """Return an array of its own with the contents and the order of axes in memory of another one."""

    @abstractmethod
    def owned(self, value: Any) -> Any:
        """Return a value, an array or a tuple of them, fit to be kept: not a small view that holds a large array."""

    @abstractmethod
    def nbytes(self, value: Any) -> int:
        """Return how many bytes a value takes."""

    @abstractmethod
    def invariant(self, array: Any) -> Any:
        """Return an array in the form in which all steps of a loop read it."""

    @abstractmethod
    def carried(self, array: Any) -> Any:
        """Return an array in the form in which a loop carries it from step to step."""

    @abstractmethod
    def new_sum(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an empty sum, in the form in which a loop adds to it."""

    @abstractmethod
    def settled(self, total: Any) -> Any:
        """Return the array of a sum."""
