"""The numbers of nodes in a file, by id: of a loop of millions of steps too.

The newest are in a dict. Those before are in sorted arrays, which take a tenth of the room; what is still asked for,
such as a variable that every step reads, comes back into the dict.
"""

from __future__ import annotations

import numpy as np

# The dict is emptied into the arrays when it has more entries than this.
_MOST_RECENT = 1 << 17


class Numbers:
    """Numbers of nodes by id."""

    __slots__ = ("_ids", "_last", "_numbers", "_recent")

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._ids = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._last = -1

    def __len__(self) -> int:
        return len({*self._recent, *self._ids.tolist()})

    def get(self, node_id: int) -> int | None:
        """Return the number of a node; None if it has none."""
        found = self._recent.get(node_id)
        if found is None and node_id <= self._last:
            at = int(self._ids.searchsorted(node_id))
            if self._ids[at] == node_id:
                found = self._recent[node_id] = int(self._numbers[at])
        return found

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._recent or (node_id <= self._last and self.get(node_id) is not None)

    def __getitem__(self, node_id: int) -> int:
        found = self.get(node_id)
        if found is None:
            raise KeyError(node_id)
        return found

    def __setitem__(self, node_id: int, number: int) -> None:
        self._recent[node_id] = number

    def settle(self) -> None:
        """Put what is in the dict away, if it is much."""
        if len(self._recent) <= _MOST_RECENT:
            return
        ids = np.fromiter(self._recent.keys(), np.int64, len(self._recent))
        numbers = np.fromiter(self._recent.values(), np.int64, len(self._recent))
        ids, first = np.unique(np.concatenate((self._ids, ids)), return_index=True)
        self._ids, self._numbers = ids, np.concatenate((self._numbers, numbers))[first]
        self._last = int(ids[-1])
        self._recent.clear()
