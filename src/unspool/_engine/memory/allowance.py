"""How much of a budget values may take, and the error that says that it is not enough."""

from __future__ import annotations

from unspool.errors import BudgetError

# The part of the budget that is left for what is not seen until it is counted: the rest of an array of which a view is
# held.
_UNSEEN = 1 << 7


def usable(budget: int) -> int:
    """Return how much of a budget values may take."""
    return budget - budget // _UNSEEN


def budget_for(nbytes: int) -> int:
    """Return the budget of which so much is usable."""
    return nbytes + -(-nbytes // (_UNSEEN - 1))


def no_room(budget: int, nbytes: int) -> BudgetError:
    """Return the error for a budget below the bytes that have to be there at once."""
    from unspool._engine.memory.sizes import format_bytes

    least = max(budget_for(nbytes), budget + 1)
    error = BudgetError(
        f"what the program holds at this point and what the next step takes are {format_bytes(nbytes)}, which is more "
        f"than the memory budget of {format_bytes(budget)}; nothing more can be evicted. The least that works here is "
        f"{least} bytes"
    )
    error.least = least
    return error
