"""``us.spool`` and ``us.resume``: a loop that is written as it goes, and goes on in another process.

A run is a folder. Its log has the recipe of every step, appended in frames; states lie beside it, one file each, kept
where the schedule for loops of unknown length wants them. A frame is written when the program says that a step is done
and some time has passed since the last one. Everything between is lost when the process dies, and nothing else.

Going on means: the graph of all steps is made again as it was, with the values of the newest state and of as many
others as there is room for; what was computed and is not there counts as evicted. So derivatives go through all steps,
back to the first, and have the bits they would have had. What is written never changes what a program computes: states
are computed at every checkpoint, written or not, and folding goes on as if nobody looked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from unspool._engine.default import default_engine
from unspool._graph import Node, describe, next_id, source_of
from unspool._ops.leaf import CONSTANT, LEAF_OPS, TENSOR
from unspool._saving.arguments import as_seconds, as_states, as_total
from unspool._saving.arrays import Arrays
from unspool._saving.file import as_path
from unspool._saving.frames import framed, records_of
from unspool._saving.log import Log
from unspool._saving.reader import GraphReader
from unspool._saving.rebuild import Rebuilt
from unspool._saving.states import Files, folder_bytes
from unspool._saving.variables import Numbered, bind, leaves_of
from unspool._saving.writer import SMALL, GraphWriter, tensors_in
from unspool.errors import ArgumentError, SaveFileError

LOG = "log"

# If the leaves of a frame have at most so many bytes together they stand in it: that takes less time than a file. So it
# is with the first state. Both are never removed.
_FEW_BYTES = 1 << 16

# States stand in the log, too, as long as they have no more bytes than steps were made, all together: there they stay.
_BYTES_A_STEP = 1


def spool(path: str | os.PathLike[str], every: str | float | timedelta = "5min", *, states: int = 32) -> SpooledRun:
    """Write a loop as it runs, so that it can be ended at any moment and goes on in another process.

    Parameters
    ----------
    path : path
        The folder of the run; it is made if it is not there. If it holds a run, this goes on with it.
    every : str, number or timedelta
        How often the run is written: "30s", "5min", "2h", or a number of seconds. Steps since the last time are made
        again after a process was killed. 0 writes every step.
    states : int
        How many states are kept on disk, at least 3. Derivatives compute steps again from these where memory is short.

    Returns
    -------
    SpooledRun
        To be used in a ``with`` block around the loop.

    Notes
    -----
    The form of a loop, the same for the first start and for every later one:

    - ``state = run.start(state, inputs=...)`` gives the state back, or the one where the run in the folder stopped.
      ``inputs`` are tensors that the loop reads beside its state. A run that goes on finds its variables in them.
    - ``for k in run.steps(n)`` counts the steps that are left.
    - ``run.checkpoint(state)`` says that a step is done. It computes the state, each time, and writes it now and then.

    At the end of the block the last state is written, also if an exception ends it.

    Examples
    --------
    >>> import tempfile
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> def power(folder, n):
    ...     with us.spool(folder) as run:
    ...         x = run.start(us.tensor([1.0, 0.0]), inputs=A)
    ...         for k in run.steps(n):
    ...             y = A @ x
    ...             x = y / us.linalg.norm(y)
    ...             run.checkpoint(x)
    ...     return x @ A @ x
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = power(folder, 5)
    ...     whole = power(folder, 50)  # the first five are there already
    >>> whole.grad(A).eval().round(6)
    array([[0.276393, 0.447214],
           [0.447214, 0.723607]])
    """
    return SpooledRun(as_path(path), as_seconds(every), as_states(states))


def resume(path: str | os.PathLike[str], every: str | float | timedelta = "5min", *, states: int = 32) -> SpooledRun:
    """Return a run that `spool` wrote: its state, and all that is needed to go on and to differentiate every step.

    Parameters
    ----------
    path : path
        The folder of the run.
    every, states
        As for `spool`, if the run goes on.

    Returns
    -------
    SpooledRun
        ``run.state`` is the state as it was given to ``checkpoint``, ``run.step`` how many steps are done, and
        ``run.inputs`` what ``start`` was given beside the state. In a ``with`` block it goes on.

    Raises
    ------
    SaveFileError
        If there is no run, it is damaged, or another process is at it.
    DefinitionError
        If it needs an op or a function of a user's that is not defined here, or otherwise.

    Examples
    --------
    >>> import tempfile
    >>> import unspool as us
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with us.spool(folder) as run:
    ...         x = run.start(us.tensor(2.0))
    ...         for k in run.steps(3):
    ...             x = x * x
    ...             run.checkpoint(x)
    ...     with us.resume(folder) as run:
    ...         first, x = run.inputs[0], run.state
    ...         x.grad(first).eval()
    array(1024.)
    """
    found = SpooledRun(as_path(path), as_seconds(every), as_states(states))
    found._open()
    return found


class SpooledRun:
    """A loop that is written as it runs; made by `spool` and `resume`.

    Attributes
    ----------
    path : Path
        The folder.
    state : pytree
        The newest state.
    inputs : tuple
        The state that the run began with, and what ``start`` was given beside it.
    step : int
        How many steps are done.
    total : int or None
        How many there are to be, if ``steps`` was told.
    history : list of dict
        The values that ``checkpoint`` was given.
    acknowledged : int
        How many steps are on the disk.
    is_finished : bool
        Whether the loop was gone on with and the block around it left without an exception. A step more, and it is not.

    Examples
    --------
    >>> import tempfile
    >>> import unspool as us
    >>> with tempfile.TemporaryDirectory() as folder, us.spool(folder, every=0) as run:
    ...     x = run.start(us.tensor(1.0))
    ...     for k in run.steps(2):
    ...         x = us.cos(x)
    ...         run.checkpoint(x)
    ...         print(run.step, run.acknowledged)
    1 1
    2 2
    """

    def __init__(self, path: Path, every: float, states: int) -> None:
        self.path = path
        self.every, self.slots = every, states
        self.state: Any = None
        self.inputs: tuple[Any, ...] = ()
        self.step = self.acknowledged = 0
        self.total: int | None = None
        self.history: list[dict[str, Any]] = []
        self._noted = 0
        self.is_finished = False
        self._log: Log | None = None
        self._writer = GraphWriter()
        self._files = Files(path)
        self._is_loaded = self._is_broken = self._is_going_on = False
        self._began = next_id()
        self._outer: set[int] = set()
        self._inline_bytes = 0
        self._opened_at = 0
        self._due = 0.0
        self._info: dict[str, Any] = {}

    # -- the form of a loop --

    def start(self, state: Any, inputs: Any = ()) -> Any:
        """Begin, or go on with the run that is in the folder.

        Parameters
        ----------
        state : pytree
            The state before the first step: tensors in lists, tuples and dicts, and numbers and texts beside them.
        inputs : pytree
            Tensors that the loop reads beside its state.

        Returns
        -------
        pytree
            The state to go on with.

        Raises
        ------
        ArgumentError
            If the run in the folder began with other data.
        """
        if self._log is not None and not self._is_loaded:
            raise ArgumentError("run.start is called once, before the first step")
        self._is_going_on = True
        given = (state, inputs)
        if self._is_loaded:
            return self.state
        is_new = self._make_folder()
        if not is_new and (self.path / LOG).exists():
            self._open(leaves_of(given))
            if self._is_loaded:
                return self.state
        self._create()
        self.inputs, self.state = given, state
        self._acknowledge()
        return state

    def steps(self, n: int) -> Iterator[int]:
        """Count the steps from where the run is to a number of them."""
        self.total, self._is_going_on = as_total(n), True
        return iter(range(self.step, self.total))

    def checkpoint(self, state: Any, values: dict[str, Any] | None = None) -> None:
        """Say that a step is done: its state is computed, and written if it is time.

        Parameters
        ----------
        state : pytree
            As for ``start``.
        values : dict, optional
            Numbers that were read in the step, by name. They go to ``history``, and are written with the step.
        """
        if self._log is None:
            raise ArgumentError("a checkpoint is part of a run: state = run.start(state) comes first")
        noted = None if values is None else _as_numbers(values)
        # Short steps notice what is done here. Nobody takes the value, so it is computed and not handed out.
        if isinstance(state, Node):
            while state.value is None:  # another thread may evict it at once
                default_engine().compute((state,))
        elif missing := [tensor for tensor in tensors_in(state) if tensor.value is None]:
            default_engine().evaluate(missing)
        self.state = state
        self.step += 1
        self.is_finished = False
        if noted is not None:
            self.history.append(noted)
        if monotonic() >= self._due:
            self._acknowledge()

    def __enter__(self) -> SpooledRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._log is not None and not self._is_broken:
                # Who only looks at a run does not end its loop.
                goes_on = self._is_going_on or self.step != self._opened_at
                ends = kind is None and goes_on and not self.is_finished
                self.is_finished |= ends
                if self.step != self.acknowledged or ends:
                    self._acknowledge()
        finally:
            self.close()

    def close(self) -> None:
        """Close the folder; steps that were not written yet are not part of it."""
        self._writer.follow(False)
        if self._log is not None:
            self._log.close()
            self._log = None

    def __repr__(self) -> str:
        of = f" of {self.total}" if self.total is not None else ""
        return f"<run in {self.path}: {self.step}{of} steps, {self.acknowledged} on disk>"

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return folder_bytes(self.path)

    # -- writing --

    def _make_folder(self) -> bool:
        """Make the folder if there is none, and say whether there was none."""
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.is_dir():
                return False
            raise SaveFileError(f"the folder {self.path} cannot be made: {error}") from error
        return True

    def _create(self) -> None:
        if self._log is None:
            self._log = Log(self.path / LOG, create=True)
        self._info["started"] = time.time()

    def _acknowledge(self) -> None:
        """Write what is new; when this returns, it is on the disk."""
        if self._is_broken:
            raise SaveFileError(f"the run in {self.path} could not be written before, and is not gone on with")
        self._is_broken = True
        started = time.perf_counter()
        writer, files = self._writer, self._files
        # It was computed at its checkpoint, and may have been evicted since.
        tensors = tensors_in(self.state)
        default_engine().evaluate(tensors)
        writer.follow(False)
        fresh = writer.add([*tensors, *tensors_in(self.inputs)])
        self._check_leaves(fresh)
        self._write_leaves(fresh)
        dropped: list[int] = []
        if files.newest != self.step or not files.positions:
            dropped = self._write_state(tensors)
        for values in self.history[self._noted :]:
            writer.put_history(values)
        self._noted = len(self.history)
        self._info["patience"] = default_engine().queue.patience
        writer.put_root((self.state, self.inputs, self.step, self.total, self.is_finished, self._info))
        seconds = self._info.get("seconds", 0.0) + time.perf_counter() - started
        self._info["seconds"] = seconds
        assert self._log is not None
        files.sync()
        self._log.append(framed(self._summary(), bytes(writer.out)), waits=self.step > 0 or self.is_finished)
        writer.out.clear()
        files.remove(dropped)
        self.acknowledged = self.step
        self._is_broken = False
        writer.follow(True)
        self._due = monotonic() + self.every

    def _summary(self) -> dict[str, Any]:
        """Return what a list of runs shows."""
        return {
            "step": self.step,
            "total": self.total,
            "finished": self.is_finished,
            "started": self._info.get("started"),
            "written": time.time(),
            "states": self._files.state_bytes,
            **{key: value for key, value in self._info.items() if isinstance(value, str)},
        }

    def note(self, **texts: str) -> None:
        """Put texts beside the run that a list of runs shows, such as what it is."""
        self._info.update(texts)

    def _check_leaves(self, fresh: Sequence[Node]) -> None:
        """Refuse variables from before the run that ``start`` was not given: who goes on cannot tell which they are."""
        leaves = [node for node in fresh if node.op is TENSOR and node.id < self._began]
        if not self._files.positions:  # these are what start was given
            self._outer.update([node.id for node in leaves])
        for node in leaves:
            if node.id not in self._outer:
                raise ArgumentError(
                    f"the loop reads {describe(node)}, made at {source_of(node)}, a variable that run.start was not "
                    "given: give it as run.start(state, inputs=...), so that a run that goes on knows which it is"
                )

    def _write_leaves(self, fresh: Sequence[Node]) -> None:
        kept = Arrays()
        number = self._files.next
        leaves = [node for node in fresh if node.op is TENSOR or node.op is CONSTANT]
        inline = _FEW_BYTES if sum([leaf.value.nbytes for leaf in leaves]) <= _FEW_BYTES else SMALL
        self._writer.put_values(leaves, kept, number, inline=inline)
        if len(kept):
            name, digest = self._files.write("leaves", kept, kept.nbytes)
            self._writer.put_file(number, name, digest, kept.nbytes)

    def _write_state(self, tensors: Sequence[Node]) -> list[int]:
        """Write the newest state, which has some tensors; return the files of states that are not kept any more."""
        files, writer = self._files, self._writer
        kept = Arrays()
        number = files.next
        # What the first state has, which is always kept, need not be written again.
        nodes = {node.id: node for node in tensors if node.op not in LEAF_OPS}
        fresh = [node for node in nodes.values() if node.id not in files.first]
        nbytes = sum([node.value.nbytes for node in fresh])
        inline = nbytes if self._takes_few(nbytes) else 0
        writer.put_values(fresh, kept, number, inline=inline)
        if not files.positions:
            files.first.update(nodes)
        name, digest = files.write("state", kept, nbytes, self.step)
        writer.put_file(number, name, digest, nbytes)
        dropped = files.add_state(self.step, number, self.slots)
        for other in dropped:
            writer.put_dropped(other)
        return dropped

    def _takes_few(self, nbytes: int) -> bool:
        """Whether a state may stand in the log, where it stays, as the first does: others have few bytes a step."""
        if not self._files.positions:
            return nbytes <= _FEW_BYTES
        if self._inline_bytes + nbytes > _BYTES_A_STEP * self.step:
            return False
        self._inline_bytes += nbytes
        return True

    # -- going on --

    def _open(self, leaves: Sequence[Node] | None = None) -> None:
        """Read the run that is in the folder; its variables are those that are given, if any are."""
        log = self._log = Log(self.path / LOG)
        try:
            reader = GraphReader()
            for frame in log.frames:
                reader.read(records_of(frame))
            if not log.frames:
                if leaves is None:
                    raise SaveFileError(f"the run in {self.path} was killed before its first state was written")
                return
            self._files.adopt(reader)
            self._rebuild(reader, leaves)
        except BaseException:
            self.close()
            raise

    def _rebuild(self, reader: GraphReader, leaves: Sequence[Node] | None) -> None:
        reader.decoder.nodes = Numbered(reader)
        root = reader.decoder.decode(reader.root)
        if not isinstance(root, tuple) or len(root) != 6 or not isinstance(root[1], tuple) or len(root[1]) != 2:
            raise SaveFileError(f"the run in {self.path} is damaged: its newest frame is none")
        if leaves is not None:
            bind(self.path, self._files, reader, root[1], leaves)
        with self._files.opened(reader) as fetch:
            rebuilt = Rebuilt(reader, fetch)
        rebuilt.revive()
        self.state, self.inputs, self.step, total, self.is_finished, info = rebuilt.root
        self.total = total if self.total is None else self.total
        self._info = {**info, **self._info}
        self._be_as_patient(info.get("patience"))
        self.acknowledged = self._opened_at = self.step
        self._inline_bytes = _BYTES_A_STEP * self.step
        self.history, self._noted = reader.history, len(reader.history)
        self._files.first.update([node.id for node in tensors_in(self.inputs[0]) if node.op not in LEAF_OPS])
        self._writer.adopt(reader, rebuilt.nodes, rebuilt.pieces)
        self._outer = {leaf.id for leaf in leaves_of(self.inputs)}
        self._is_loaded = True
        self._due = monotonic() + self.every

    def _be_as_patient(self, patience: Any) -> None:
        """Let pieces that wait be folded when they would have been: that decides how derivatives are added up."""
        if not isinstance(patience, tuple) or not all(type(count) is int for count in patience) or len(patience) != 2:
            raise SaveFileError(f"the run in {self.path} is damaged: it does not say how many pieces waited")
        crowd, length = patience
        default_engine().queue.be_as_patient(crowd, min(length, 1 << 20))


def _as_numbers(values: Any) -> dict[str, Any]:
    """Return what was read in a step, if it is that: a tensor would stand in the file as the node that it is."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ArgumentError(f"run.checkpoint takes a dict of the numbers that were read in a step, got {values!r:.80}")
    for name, value in values.items():
        if tensors_in(value):
            raise ArgumentError(
                f"run.checkpoint was given a tensor as {name!r}: values are numbers that were read, as float(x) or "
                "x.eval(); tensors that the next step needs belong in the state"
            )
    return dict(values)
