"""Files of arrays beside the log of a run: data of leaves, which stay, and states, of which some are kept.

Which state goes when there are too many is what `unspool.checkpoint.online` says for a loop of unknown length: the one
that a backward pass would miss least if the loop ended now. The first and the newest always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unspool._engine.default import default_engine
from unspool._saving import arrays
from unspool._saving.arrays import ArrayFile, Arrays
from unspool._saving.reader import GraphReader, Stored
from unspool.checkpoint.online import removal_costs
from unspool.errors import SaveFileError

# Of the memory that the engine may use, states that are loaded beside the newest take at most this share.
_SHARE = 4


class Files:
    """The files of arrays of a run.

    Attributes
    ----------
    next : int
        The number of the next file.
    positions : list of int
        The steps whose states are kept, in order.
    first : set of int
        The ids of nodes whose values are in the first state.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.next = 0
        self.positions: list[int] = []
        self.first: set[int] = set()
        self._numbers: list[int] = []
        self._sizes: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._has_unsynced = False

    @property
    def newest(self) -> int:
        """The step of the newest state; -1 if there is none."""
        return self.positions[-1] if self.positions else -1

    @property
    def state_bytes(self) -> int:
        """Bytes of the states that are kept."""
        return sum(self._sizes[number] for number in self._numbers)

    def write(self, kind: str, kept: Arrays, nbytes: int, step: int = 0) -> tuple[str, bytes]:
        """Write the next file; return its name and its digest. Its name is on the disk after `sync`.

        ``nbytes`` are those of what it stands for. If none of that is in arrays there is no file, and no digest.
        """
        number = self.next
        name = f"{kind}-{number}-{step}.safetensors"
        digest = b""
        if len(kept):
            digest = arrays.write(self._path / name, kept, is_named=True)
            self._has_unsynced = True
        self._names[number], self._sizes[number] = name, nbytes
        self.next += 1
        return name, digest

    def sync(self) -> None:
        """Let the names of files reach the disk that were written."""
        if self._has_unsynced:
            arrays.sync_directory(self._path)
            self._has_unsynced = False

    def add_state(self, step: int, number: int, slots: int) -> list[int]:
        """Take note of the state of a step, and return the numbers of files that go for it."""
        self.positions.append(step)
        self._numbers.append(number)
        dropped = []
        while len(self.positions) > slots:
            costs = removal_costs(self.positions, step + 1)
            index = min(range(1, len(costs) - 1), key=costs.__getitem__)
            del self.positions[index]
            dropped.append(self._numbers.pop(index))
        return dropped

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove files; one that cannot be removed now is removed when the run is opened again."""
        for number in numbers:
            with suppress(OSError):
                (self._path / self._names.pop(number)).unlink()

    # -- going on --

    def adopt(self, reader: GraphReader) -> None:
        """Go on with the files that a log names, and remove all others: what was written and not acknowledged."""
        self._names = {number: file.name for number, file in reader.files.items()}
        self._sizes = {number: file.nbytes for number, file in reader.files.items()}
        self.next = reader.next_file
        for number, file in sorted(reader.files.items()):
            kind, _, step = file.name.removesuffix(".safetensors").split("-")
            if kind == "state":
                self.positions.append(int(step))
                self._numbers.append(number)
        named = set(self._names.values())
        for path in self._path.glob("*.safetensors*"):
            if path.name not in named:
                with suppress(OSError):
                    path.unlink()

    @contextmanager
    def opened(self, reader: GraphReader) -> Iterator[Callable[[Stored], Any]]:
        """Open the files that are to be loaded: all leaves, the newest state, and others as far as there is room."""
        wanted = self._wanted()
        files: dict[int, ArrayFile] = {}
        found: dict[Stored, Any] = {}

        def fetch(stored: Stored) -> Any:
            if stored.file not in reader.files or stored.file not in wanted:
                return None
            if stored not in found:
                if stored.file not in files:
                    files[stored.file] = self._open(reader, stored.file)
                found[stored] = files[stored.file].get(stored.group, stored.row)
            return found[stored]

        try:
            yield fetch
        finally:
            for file in files.values():
                file.close()

    def _open(self, reader: GraphReader, number: int) -> ArrayFile:
        said = reader.files[number]
        if Path(said.name).name != said.name:
            raise SaveFileError(f"the run names a file outside of its folder: {said.name!r:.80}")
        file = ArrayFile(self._path / said.name)
        if file.digest != said.digest:
            file.close()
            raise SaveFileError(f"{file.path} is not the file that the run wrote")
        return file

    def _wanted(self) -> set[int]:
        """Return the numbers of files to load."""
        states = self._numbers
        wanted = set(self._names) - set(states)
        wanted.update(states[:1] + states[-1:])
        room = default_engine().ledger.limit // _SHARE
        between = states[1:-1]
        total = sum(self._sizes[number] for number in between)
        every = max(1, -(-total // max(1, room)))
        wanted.update(between[every - 1 :: every])
        return wanted


def folder_bytes(path: Path) -> int:
    """Return the bytes of all files in a folder."""
    total = 0
    with suppress(OSError):
        for entry in path.iterdir():
            with suppress(OSError):
                total += entry.stat().st_size
    return total
