"""Files of reports: written whole or not at all, and read back if they are what they should be."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from unspool._report.gather import FORMAT, VERSION
from unspool._report.sections import page_of
from unspool.errors import ReportError

_EMBEDDED = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)

# What a file must have at least to be taken for a report, by name and kind.
_PARTS = {
    "title": str,
    "made": str,
    "loss": dict,
    "steps": dict,
    "readings": list,
    "cotangents": dict,
    "gradient": dict,
    "memory": dict,
    "budgets": dict,
    "program": dict,
    "times": dict,
    "spectra": dict,
    "unfolded": list,
    "inputs": list,
    "settings": dict,
    "versions": dict,
    "blas": dict,
    "lines": dict,
}


def read_data(place: Path) -> dict[str, Any]:
    """Return the data of a report from its page or its JSON."""
    name = os.fspath(place)
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ReportError(f"{name!r} cannot be read as a report: {error}") from error
    found = _EMBEDDED.search(text)
    try:
        data: dict[str, Any] = _from_json(json.loads(found[1] if found else text))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name!r} is not a report: it holds no JSON ({error})") from error
    _check_data(data, name)
    return data


def write_whole(path: Path, text: str) -> Path:
    """Write a file, all of it or nothing: beside its place first, then moved there."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(text)
        # The file is for whoever may read what is made here, not for its writer alone.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ReportError(f"{os.fspath(path)!r} cannot be written: {error}") from error
    return path


def _from_json(data: Any) -> Any:
    """Return data with the numbers that are not finite as numbers again."""
    if isinstance(data, dict):
        return {key: _from_json(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_from_json(value) for value in data]
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(data, data) if isinstance(data, str) else data


def _check_data(data: Any, path: str) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReportError(f"{path!r} is not a report of unspool")
    if data.get("version") != VERSION:
        raise ReportError(
            f"{path!r} is a report of version {data.get('version')!r}, this unspool reads version {VERSION}"
        )
    for name, kind in _PARTS.items():
        if not isinstance(data.get(name), kind):
            raise ReportError(f"{path!r} is not a whole report: {name!r} is missing or is no {kind.__name__}")
    try:
        # Whether all is there that a page shows is known to who writes it.
        page_of(data)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ReportError(f"{path!r} is not a whole report: {type(error).__name__}, {error}") from error
