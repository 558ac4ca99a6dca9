"""Results in a folder, written as they come, and read when a run goes on.

The one idea: a file is there with all of its contents or not at all. It is written under another name, and renamed.
Each has a checksum, and holds arrays and words, no code (safetensors). ``ensemble.json`` says what the results are of;
a folder of something else is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspool._ensembles.work import Piece
from unspool.errors import ArgumentError, EnsembleError

FORMAT = 1

_MANIFEST = "ensemble.json"


class Store:
    """The folder of one ensemble.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    facts : mapping
        What the results are of, by name.
    keeps_changed : bool
        Whether results of another version of the function are taken.
    """

    def __init__(self, folder: str | os.PathLike[str], facts: Mapping[str, Any], keeps_changed: bool) -> None:
        self._path = Path(folder)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"the folder {folder!r} of an ensemble cannot be made: {error}") from error
        self._facts = {"format": FORMAT, "python": sys.version.split()[0], **facts}
        found = self._manifest()
        if found is not None:
            self._compare(found, keeps_changed)
        if found is None or found != self._facts:
            _write(self._path / _MANIFEST, json.dumps(self._facts, indent=1).encode())

    @staticmethod
    def width(folder: str | os.PathLike[str]) -> int | None:
        """Return how many members run as one batch in what a folder holds, if it holds anything."""
        try:
            return int(json.loads((Path(folder) / _MANIFEST).read_text(encoding="utf-8"))["batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read(self, start: int, stop: int) -> Piece | None:
        """Return the results of some members that are in the folder; ``None`` if there are none, or damaged."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._file(start, stop), framework="numpy") as file:
                told = json.loads((file.metadata() or {})["piece"])
                stored = [file.get_tensor(f"{i}") for i in range(len(told["dtypes"]))]
            if _checksum(stored) != told.pop("checksum"):
                return None
            dtypes = told.pop("dtypes")
            arrays = [_from_stored(x, np.dtype(dtype)) for x, dtype in zip(stored, dtypes, strict=True)]
            return Piece(arrays=arrays, **told)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None

    def write(self, piece: Piece) -> None:
        """Write what came of some members."""
        from safetensors.numpy import save

        stored = [_to_stored(x) for x in piece.arrays]
        told = {name: getattr(piece, name) for name in piece.__dataclass_fields__ if name != "arrays"}
        told |= {"dtypes": [x.dtype.str for x in piece.arrays], "checksum": _checksum(stored)}
        text = save({f"{i}": x for i, x in enumerate(stored)}, {"piece": json.dumps(told)})
        _write(self._file(piece.start, piece.stop), text)

    def _file(self, start: int, stop: int) -> Path:
        return self._path / f"members-{start:07d}-{stop:07d}.safetensors"

    def _manifest(self) -> dict[str, Any] | None:
        try:
            found = json.loads((self._path / _MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise EnsembleError(f"{self._path / _MANIFEST} cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise EnsembleError(f"{self._path / _MANIFEST} is not of a format that this version of unspool reads")
        return found

    def _compare(self, found: Mapping[str, Any], keeps_changed: bool) -> None:
        lenient = {"python", *(("function", "code") if keeps_changed else ())}
        changed = [name for name in self._facts if found.get(name) != self._facts[name] and name not in lenient]
        if not changed:
            return
        hint = "give another folder, or remove this one"
        if set(changed) <= {"function", "code"}:
            hint += "; changed='keep' takes them as they are"
            if found.get("python") != self._facts["python"]:
                hint += f" (they were written by Python {found.get('python')}, which compiles functions differently)"
        ending = "s" if len(changed) == 1 and not changed[0].endswith("s") else ""
        raise EnsembleError(
            f"the folder {str(self._path)!r} has results of another ensemble: the {' and the '.join(changed)} "
            f"differ{ending}; {hint}"
        )


def _write(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    made = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(made, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise EnsembleError(f"results cannot be written to {str(path)!r}: {error}") from error


def _checksum(stored: Sequence[Any]) -> str:
    found = hashlib.sha256()
    for array in stored:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _to_stored(array: Any) -> Any:
    """Return an array as the format has it: complex numbers are pairs."""
    dense = np.ascontiguousarray(array)
    if dense.dtype.kind != "c":
        return dense
    return dense.view(dense.real.dtype).reshape(*dense.shape, 2)


def _from_stored(array: Any, dtype: Any) -> Any:
    return array.view(dtype)[..., 0] if dtype.kind == "c" else array
