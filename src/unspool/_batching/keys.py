"""Random keys of members: a key that lies along an axis of a batch is split among its members.

A key that is derived from one of a member (`unspool.random.split`, `fold_in`) is a key of that member. So what each
draws is what it would draw alone with its own key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unspool._dims import Size
from unspool._ops.layout import stack
from unspool._ops.random import Key
from unspool.errors import UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

StandIn = Callable[["Tensor"], "Tensor"]


class MemberKey(Key):
    """The key of one member, whichever that is: in a recipe, a stand-in for the keys of all.

    Two are equal if they are so for all members.
    """

    __slots__ = ("_input", "_keys", "_stand_in")

    _keys: tuple[Key, ...]
    _stand_in: StandIn
    _input: Any

    def __init__(self, keys: tuple[Key, ...], stand_in: StandIn) -> None:
        super().__init__(0)
        object.__setattr__(self, "_keys", keys)
        object.__setattr__(self, "_stand_in", stand_in)
        object.__setattr__(self, "_input", None)

    def derive(self, purpose: str, data: int) -> Key:
        """Return the key that belongs to a number under the key of each member."""
        return MemberKey(tuple([key.derive(purpose, data) for key in self._keys]), self._stand_in)

    def as_input(self) -> Tensor:
        """Return the stand-in for the halves of the keys of all members."""
        if self._input is None:
            object.__setattr__(self, "_input", self._stand_in(stack([key.as_input() for key in self._keys])))
        found: Tensor = self._input
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemberKey) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __reduce__(self) -> Any:
        raise TypeError("the key of a member is known to its batch alone and cannot be pickled")

    def __repr__(self) -> str:
        return f"<the key of one of {len(self._keys)} members>"


def member_key(key: Key, count: Size, stand_in: StandIn) -> MemberKey:
    """Return the key of one of a number of members, among which a key is split."""
    if not isinstance(count, int):
        raise UnknownSizeError(f"a random key is split among a known number of members, got {count}")
    return MemberKey(tuple([key.derive("split", i) for i in range(count)]), stand_in)
