"""``us.save`` and ``us.load``: recipes with their history and the values they hold, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from unspool._fragments.call import Call
from unspool._saving import arrays
from unspool._saving.arrays import ArrayFile, Arrays
from unspool._saving.reader import GraphReader, Stored
from unspool._saving.rebuild import Rebuilt
from unspool._saving.writer import GraphWriter, tensors_in
from unspool.errors import ArgumentError, SaveFileError

FORMAT = "unspool-recipes-1"


def save(path: str | os.PathLike[str], tensors: Any) -> None:
    """Write tensors to a file: not their values alone, but how they are made, so that they can be differentiated later.

    Parameters
    ----------
    path : path
        The file. One that is there is replaced, once the new one is complete.
    tensors : pytree
        Tensors in lists, tuples and dicts, with numbers, texts and ``None`` beside them.

    Raises
    ------
    SaveError
        If something in the history of a tensor cannot be written: a function without a name, an object of a kind that
        unspool does not know.
    SaveFileError
        If the disk is full or fails; what was there before is still there then.

    Notes
    -----
    In the file are the recipes with their loops, the data of variables and constants, the values that are held, names
    and lines of source. It is a safetensors file; the arrays in it can be read with other tools. What derivatives keep
    beside values is not in it.

    Examples
    --------
    >>> import tempfile, os
    >>> import unspool as us
    >>> x = us.tensor([3.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.save(os.path.join(folder, "norm"), {"x": x, "loss": us.linalg.norm(x)})
    ...     found = us.load(os.path.join(folder, "norm"))
    >>> found["loss"].grad(found["x"]).eval()
    array([0.6, 0.8])
    """
    place = as_path(path)
    if place.is_dir():
        raise SaveFileError(f"{place} is a folder; us.save writes a file")
    writer = GraphWriter()
    kept = Arrays()
    written = writer.add(tensors_in(tensors))
    writer.put_values([node for node in written if node.value is not None and type(node) is not Call], kept)
    writer.put_root(tensors)
    arrays.write(place, kept, bytes(writer.out), FORMAT)


def load(path: str | os.PathLike[str]) -> Any:
    """Return what `save` wrote: tensors with their history, whose values and derivatives have the same bits.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    pytree
        As it was saved. Recipes that are there already are those very tensors; so are variables that are alive in this
        process, or were loaded from another file before.

    Raises
    ------
    SaveFileError
        If there is no such file, or it was cut, altered, or written by something else. Nothing is loaded then.
    DefinitionError
        If it needs an op of `us.op`, or a function with a rule of its own, that is not defined here, or otherwise.

    Notes
    -----
    Nothing in a file is code, and loading runs nothing that it names.

    Examples
    --------
    >>> import tempfile, os
    >>> import unspool as us
    >>> x = us.tensor([3.0, 4.0])
    >>> y = x * x
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.save(os.path.join(folder, "square"), y)
    ...     us.load(os.path.join(folder, "square")) is y
    True
    """
    with ArrayFile(as_path(path), FORMAT) as file:
        reader = GraphReader()
        reader.read(file.structure)
        if reader.files:
            raise SaveFileError(f"{file.path} is a part of a run; us.resume reads runs")
        found: dict[Stored, Any] = {}

        def fetch(stored: Stored) -> Any:
            if stored not in found:
                found[stored] = file.get(stored.group, stored.row)
            return found[stored]

        return Rebuilt(reader, fetch).root


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as one."""
    try:
        found = Path(path)
    except TypeError:
        raise ArgumentError(f"a path is a text or a Path, got {path!r}") from None
    if not os.fspath(path) or "\0" in str(found):
        raise ArgumentError(f"a path names a file or a folder, got {path!r}")
    return found
