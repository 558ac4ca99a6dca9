"""Every exception that unspool raises on purpose, one class per kind.

All derive from `UnspoolError` and, where Python has a matching built-in, from that too, so that ``except ValueError``
written for NumPy code keeps working. A message says what was expected, what came, which operation it concerns and,
where a node is to blame, the line of user code that made the node.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AccumulatorLengthError",
    "AccumulatorShapeError",
    "ArgumentError",
    "BudgetError",
    "ComplexLossError",
    "ContributionShapeError",
    "ConvergenceError",
    "DTypeError",
    "DTypeMismatchError",
    "DefinitionError",
    "EnsembleError",
    "ExactArithmeticError",
    "GaugeError",
    "GradientCheckError",
    "IndexRangeError",
    "KernelError",
    "LeftGraphError",
    "MissingRuleError",
    "MutationError",
    "NaNError",
    "NoAxesError",
    "NoValueError",
    "NonScalarLossError",
    "NonScalarOutputError",
    "NotConnectedError",
    "NotEvaluatedError",
    "OpDefinitionError",
    "PoolError",
    "RankError",
    "RankMismatchError",
    "RebuildError",
    "ReportError",
    "SaveError",
    "SaveFileError",
    "SeedShapeError",
    "ShapeError",
    "ShapeMismatchError",
    "SideEffectError",
    "SizeContradictionError",
    "SpillError",
    "SpillWarning",
    "StructureError",
    "UnboundPlaceholderError",
    "UnboundSizeError",
    "UnexpectedBindingError",
    "UnknownNodeError",
    "UnknownSizeError",
    "UnspoolError",
    "UnsupportedError",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class UnspoolError(Exception):
    """Base class of all errors raised by unspool."""


# --- building a graph ------------------------------------------------------------------------------------------------


class ShapeError(UnspoolError, ValueError):
    """Shapes or axes that an operation cannot accept."""


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have. An `IndexError` too, as NumPy's is."""


class MaskShapeError(ShapeError, IndexError):
    """A mask whose shape is not that of what it selects from. An `IndexError` too, as NumPy's is."""


class NoAxesError(ShapeError, TypeError):
    """A tensor without axes where a sequence is needed. A `TypeError` too, as NumPy's is: libraries ask by trying."""


class DTypeError(UnspoolError, TypeError):
    """A data type that an operation cannot accept, or that unspool does not have."""


class ArgumentError(UnspoolError, ValueError):
    """An argument whose value makes no sense, alone or beside the others."""


class IndexRangeError(UnspoolError, IndexError):
    """An index outside its axis; the message names axis, index and size."""


class MutationError(UnspoolError, TypeError):
    """An attempt to write into a tensor; tensors are immutable, use ``t.at[...]``."""


class UnknownSizeError(UnspoolError, ValueError):
    """A question about symbolic sizes that has no answer before they are bound."""


class UnsupportedError(UnspoolError, TypeError):
    """A function of NumPy, or an argument of one, that has no counterpart on tensors."""


class StructureError(UnspoolError, TypeError):
    """Nested structures (pytrees) that had to match and do not."""


class SideEffectError(UnspoolError, RuntimeError):
    """A function that is run once and then repeated changes what it reads, so that repeating it would be wrong."""


class OpDefinitionError(UnspoolError, ValueError):
    """An operation registered with `unspool.op` that contradicts itself or its declaration."""


# --- evaluating ------------------------------------------------------------------------------------------------------


class UnboundPlaceholderError(UnspoolError, ValueError):
    """A placeholder was needed and no value was given for it."""


class NoValueError(UnspoolError, TypeError):
    """A recipe that was not evaluated where only a value can go: into a pickle."""


class NotEvaluatedError(UnspoolError, ValueError):
    """A report of a run was asked for, of a tensor whose value nobody has asked for."""


class ReportError(UnspoolError, OSError):
    """A report could not be written, or a file that should be one could not be read."""


class UnboundSizeError(UnspoolError, ValueError):
    """A symbolic size was needed and no bound placeholder determines it."""


class UnexpectedBindingError(UnspoolError, ValueError):
    """A value was given for something that is not a placeholder."""


class DTypeMismatchError(UnspoolError, TypeError):
    """A value bound to a placeholder has the wrong data type."""


class RankMismatchError(UnspoolError, ValueError):
    """A value bound to a placeholder has the wrong number of axes."""


class ShapeMismatchError(UnspoolError, ValueError):
    """A value bound to a placeholder has the wrong size along an axis."""


class SizeContradictionError(UnspoolError, ValueError):
    """Sizes that the graph needs to be equal were bound to different numbers."""


class KernelError(UnspoolError, RuntimeError):
    """The computation of one node failed; the message names node, op, shapes and source line."""


class ConvergenceError(UnspoolError, ArithmeticError):
    """An iterative solver did not reach its tolerance.

    Attributes
    ----------
    residual : float
        How far it came, relative to the right-hand side; NaN where that is not known.
    iterations : int
        How often the operator was applied.
    tolerance : float
        What was asked for.
    """

    residual: float = float("nan")
    iterations: int = 0
    tolerance: float = 0.0


class BudgetError(UnspoolError, MemoryError):
    """A memory budget that cannot work; raised before the work, and it names the least that can.

    Attributes
    ----------
    least : int
        The smallest budget that works, in bytes.
    """

    least: int = 0


class EnsembleError(UnspoolError, RuntimeError):
    """Members of an ensemble that failed where results were needed, or a folder with results of something else.

    Attributes
    ----------
    failures : list of Failure
        The members that failed, with their parameters.
    """

    failures: Any = ()


class PoolError(UnspoolError, RuntimeError):
    """A pool of workers that takes no tasks, or broke while it worked."""


class SpillError(UnspoolError, OSError):
    """A value that was moved to disk could not be written, or cannot be read back as it was."""


class SaveError(UnspoolError, ValueError):
    """Something that a file cannot hold was to be saved: a parameter of an unknown kind, a function without a name."""


class SaveFileError(UnspoolError, OSError):
    """A saved file or run that is missing, cut, altered, of another format, or in use; nothing of it was loaded."""


class DefinitionError(UnspoolError, LookupError):
    """A saved recipe needs an op or a function of a user's that is not there when it is loaded, or is another one."""


class SpillWarning(RuntimeWarning):
    """A value could not be written to disk or read back, and is recomputed instead."""


class RebuildError(UnspoolError, ArithmeticError):
    """A value that was evicted and recomputed differs from what it was: some op does not repeat itself."""


class NaNError(UnspoolError, ArithmeticError):
    """A node produced NaN from inputs without NaN, in `unspool.debug.check_nan` mode.

    Attributes
    ----------
    report : NaNReport or None
        Where that was, if it is known.
    """

    report: Any = None


# --- differentiating -------------------------------------------------------------------------------------------------


class MissingRuleError(UnspoolError, NotImplementedError):
    """An operation has no derivative rule for the mode that was asked for."""


class NotConnectedError(UnspoolError, ValueError):
    """The output does not depend on any of the variables, or not on one and ``unconnected="raise"`` was given."""


class LeftGraphError(UnspoolError, TypeError):
    """While a derivative was taken, a tensor that depends on a variable became a plain array without being asked to."""


class NonScalarLossError(UnspoolError, ValueError):
    """A gradient was asked of something that is not a scalar."""


class GaugeError(UnspoolError, ArithmeticError):
    """A loss depends on what a decomposition leaves open: a phase, or a basis inside a degenerate block.

    Attributes
    ----------
    indices : tuple of int
        Which values, vectors or columns are concerned.
    amount : float
        How much of the cotangent goes there, relative to its largest entry.
    """

    indices: tuple[int, ...] = ()
    amount: float = 0.0


class RankError(UnspoolError, ValueError):
    """A derivative needs a matrix of full rank, or of constant rank; the message names the rank found."""


class ComplexLossError(UnspoolError, TypeError):
    """A gradient was asked of a complex loss without ``holomorphic=True``."""


class GradientCheckError(UnspoolError, AssertionError):
    """`unspool.check_grad` found a derivative that disagrees with its reference."""


# --- the tape --------------------------------------------------------------------------------------------------------


class UnknownNodeError(UnspoolError, LookupError):
    """An id or tensor that the tape does not hold."""


class SeedShapeError(UnspoolError, ValueError):
    """A seed whose shape is not that of its node."""


class AccumulatorLengthError(UnspoolError, ValueError):
    """A dense array of cotangents whose length is not that of the tape."""


class AccumulatorShapeError(UnspoolError, ValueError):
    """An entry of a dense array of cotangents whose shape is not that of its node."""


class ContributionShapeError(UnspoolError, ValueError):
    """A derivative rule returned a cotangent whose shape is not that of the input it is for."""


class NonScalarOutputError(UnspoolError, ValueError):
    """`Tape.backward_scalar` was asked to start from a node that is not a scalar."""


class ExactArithmeticError(UnspoolError, TypeError):
    """An operation has no exact meaning on rationals (an exponential, say)."""
