"""What runs there are in a folder, and how far they are: read from their logs, without making anything of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool._saving.frames import split_frame
from unspool._saving.log import read_frames
from unspool._saving.run import LOG
from unspool._saving.states import folder_bytes
from unspool.errors import SaveFileError

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class RunInfo:
    """A run as a list shows it.

    Attributes
    ----------
    path : Path
    status : str
        "finished", "running", "stopped", or what is wrong with it.
    step : int
        How many steps are on the disk.
    total : int or None
        How many there are to be, if that is known.
    nbytes, state_bytes : int
        Bytes of all its files, and of the states in them.
    written : float
        When the newest frame was written, in seconds since 1970.
    notes : dict
        Texts that were put beside it.
    """

    path: Path
    status: str
    step: int = 0
    total: int | None = None
    nbytes: int = 0
    state_bytes: int = 0
    written: float = 0.0
    notes: dict[str, str] | None = None


def runs_in(folder: Path) -> list[RunInfo]:
    """Return the runs in a folder, and the folder itself if it is one, the newest last."""
    if not folder.is_dir():
        raise SaveFileError(f"there is no folder {folder}")
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = [run_info(place) for place in places if (place / LOG).is_file()]
    return sorted(found, key=lambda info: info.written)


def run_info(path: Path) -> RunInfo:
    """Return what there is to say of a run."""
    try:
        frames, _, _ = read_frames(path / LOG, (path / LOG).read_bytes())
        summary: dict[str, Any] = split_frame(frames[-1])[0] if frames else {}
    except (OSError, SaveFileError) as error:
        return RunInfo(path, f"unreadable: {error}", nbytes=folder_bytes(path))
    status = "finished" if summary.get("finished") else "running" if _is_locked(path / LOG) else "stopped"
    return RunInfo(
        path,
        status if frames else "empty",
        _number(summary.get("step")) or 0,
        _number(summary.get("total")),
        folder_bytes(path),
        _number(summary.get("states")) or 0,
        float(_number(summary.get("written")) or 0),
        {key: value for key, value in summary.items() if isinstance(value, str)},
    )


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_locked(path: Path) -> bool:
    if sys.platform == "win32":
        return False
    with open(path, "rb") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    return False
