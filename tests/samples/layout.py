"""Samples of operations that move elements. All are linear (but `kron`), so all are exact on rationals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.layout.cropping import crop
from unspool._ops.layout.repeating import sum_copies


def _crop_reference(x: Any) -> Any:
    return x[1:3, 0:2]


def _sum_copies_reference(x: Any) -> Any:
    return np.stack([x[0] + x[1], 0 * x[0], x[2]])


def _sum_wrapped_reference(x: Any) -> Any:
    return np.stack([x[:, 1] + x[:, 3], x[:, 0] + x[:, 2]], axis=1)


def _of(*samples: tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...], str]) -> list[Sample]:
    return [
        Sample(op, function, args, reference, exact=not any(np.iscomplexobj(a) for a in args), label=label)
        for op, function, reference, args, label in samples
    ]


RESHAPING = _of(
    ("reshape", lambda x: us.reshape(x, (3, 2)), lambda x: x.reshape(3, 2), (real(2, 3),), "flat order"),
    ("reshape", lambda x: us.reshape(x, (4,)), lambda x: x.reshape(4), (complex_(2, 2),), "to a vector"),
    ("reshape", lambda x: us.reshape(x, (1, 1)), lambda x: x.reshape(1, 1), (real(),), "from 0-d"),
    ("reshape", lambda x: us.reshape(x, ()), lambda x: x.reshape(()), (real(1),), "to 0-d"),
    ("reshape", lambda x: us.reshape(x, (3, 0)), lambda x: x.reshape(3, 0), (real(0, 2),), "size 0"),
    ("reshape", us.ravel, np.ravel, (real(2, 1, 2),), "ravel"),
    ("reshape", lambda x: us.expand_dims(x, (0, -1)), lambda x: x[None, ..., None], (real(3),), "expand_dims"),
    ("reshape", us.squeeze, np.squeeze, (real(1, 3, 1),), "squeeze"),
    ("permute_dims", us.transpose, np.transpose, (real(2, 3),), "matrix"),
    ("permute_dims", us.transpose, np.transpose, (complex_(2, 2),), "complex matrix"),
    ("permute_dims", lambda x: us.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), (real(2, 3, 2),), "cycle"),
    ("permute_dims", us.matrix_transpose, lambda x: np.swapaxes(x, -1, -2), (real(2, 1, 3),), "batched"),
    ("permute_dims", us.transpose, np.transpose, (real(0, 3),), "size 0"),
    ("permute_dims", us.transpose, np.transpose, (real(1, 3),), "size 1"),
    ("broadcast_to", lambda x: us.broadcast_to(x, (2, 3)), lambda x: x + np.zeros((2, 3), int), (real(3),), "new axis"),
    ("broadcast_to", lambda x: us.broadcast_to(x, (2, 3)), lambda x: x + np.zeros((2, 3), int), (real(2, 1),), "old"),
    ("broadcast_to", lambda x: us.broadcast_to(x, (2, 2)), lambda x: x + np.zeros((2, 2), int), (real(),), "from 0-d"),
    (
        "broadcast_to",
        lambda x: us.broadcast_to(x, (2, 2)),
        lambda x: x + np.zeros((2, 2)),
        (complex_(1, 2),),
        "complex",
    ),
    (
        "broadcast_to",
        lambda x: us.broadcast_to(x, (2, 0)),
        lambda x: x + np.zeros((2, 0), int),
        (real(1, 0),),
        "size 0",
    ),
)

SHIFTING = _of(
    ("flip", us.flip, np.flip, (real(2, 3),), "all axes"),
    ("flip", lambda x: us.flip(x, 1), lambda x: np.flip(x, 1), (complex_(2, 3),), "one axis"),
    ("roll", lambda x: us.roll(x, 1), lambda x: np.roll(x, 1), (real(2, 3),), "flat"),
    ("roll", lambda x: us.roll(x, (1, -1), (0, 1)), lambda x: np.roll(x, (1, -1), (0, 1)), (real(2, 3),), "two axes"),
    ("roll", lambda x: us.roll(x, 2, 0), lambda x: np.roll(x, 2, 0), (complex_(3),), "one axis"),
    ("flip", lambda x: us.flip(x, (0, 1, 2)), np.flip, (real(2, 1, 2),), "size 1"),
    ("flip", lambda x: us.flip(x, 1), lambda x: np.flip(x, 1), (real(0, 2),), "size 0"),
    ("roll", lambda x: us.roll(x, 1, 1), lambda x: np.roll(x, 1, 1), (real(0, 2),), "size 0"),
)

CROPPING = _of(
    ("crop", lambda x: crop(x, (1, 0), (2, 2)), _crop_reference, (real(4, 3),), "box"),
    ("crop", lambda x: crop(x, (1, 0), (2, 2)), _crop_reference, (complex_(3, 3),), "complex box"),
    ("crop", lambda x: crop(x, (2,), (0,)), lambda x: x[2:2], (real(3),), "nothing"),
    ("crop", lambda x: crop(x, (0, 1), (0, 1)), lambda x: x[:, 1:2], (real(0, 3),), "size 0"),
    ("crop", lambda x: us.tile(x, (2, 0)), lambda x: np.tile(x, (2, 0)), (real(2, 2),), "tiled no times"),
    ("zero_pad", lambda x: us.pad(x, 1), lambda x: np.pad(x, 1), (real(2, 2),), "all round"),
    (
        "zero_pad",
        lambda x: us.pad(x, ((0, 1), (2, 0))),
        lambda x: np.pad(x, ((0, 1), (2, 0))),
        (complex_(2, 1),),
        "sides",
    ),
    ("zero_pad", lambda x: us.pad(x, (1, 2)), lambda x: np.pad(x, (1, 2)), (real(0),), "size 0"),
)

JOINING = _of(
    ("concat", lambda x, y: us.concat([x, y]), lambda x, y: np.concatenate([x, y]), (real(2), real(3)), "vectors"),
    (
        "concat",
        lambda x, y: us.concat([x, y, x], axis=1),
        lambda x, y: np.concatenate([x, y, x], axis=1),
        (real(2, 1), real(2, 2)),
        "an operand twice",
    ),
    ("concat", lambda x, y: us.concat([x, y]), lambda x, y: np.concatenate([x, y]), (real(2), complex_(1)), "promoted"),
    ("concat", lambda x, y: us.concat([x, y]), lambda x, y: np.concatenate([x, y]), (real(0), real(1)), "size 0"),
    ("concat", lambda x: us.concat([x, [1.0]]), lambda x: np.append(x, 1.0), (real(2),), "with a constant"),
    ("concat", lambda x, y: us.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), (real(3), real(3, seed=1)), "stack"),
    ("concat", lambda x, y: us.stack([x, y]), lambda x, y: np.stack([x, y]), (real(), real(seed=1)), "stack of 0-d"),
    (
        "concat",
        lambda x: us.pad(x, 1, constant_values=((2.0, 3.0), (4.0, 5.0))),
        lambda x: np.pad(x, 1, constant_values=((2, 3), (4, 5))),
        (real(2, 1),),
        "padded",
    ),
    ("split", lambda x: us.split(x, 3)[1], lambda x: np.split(x, 3)[1], (real(6),), "one of three"),
    ("split", lambda x: us.multiply(*us.split(x, 2)), lambda x: x[:2] * x[2:], (real(4),), "all pieces"),
    (
        "split",
        lambda x: us.concat(us.split(x, [1, 3], axis=1)[::-2], axis=1),
        lambda x: np.concatenate([x[:, 3:], x[:, :1]], axis=1),
        (complex_(2, 4),),
        "first and last",
    ),
    ("split", lambda x: us.unstack(x)[0] * us.unstack(x)[2], lambda x: x[0] * x[2], (real(3, 2),), "unstack"),
    ("split", lambda x: us.split(x, [0])[1], lambda x: x, (real(2),), "empty piece"),
    ("split", lambda x: us.split(x, 2, axis=1)[0], lambda x: x[:, :1], (real(0, 2),), "size 0"),
)

REPEATING = _of(
    ("broadcast_to", lambda x: us.repeat(x, 2, 0), lambda x: np.repeat(x, 2, 0), (real(2, 2),), "repeat"),
    ("broadcast_to", lambda x: us.tile(x, (2, 2)), lambda x: np.tile(x, (2, 2)), (real(2),), "tile"),
    ("copy_along", lambda x: us.repeat(x, [2, 0, 1]), lambda x: np.repeat(x, [2, 0, 1]), (real(3),), "repeat"),
    (
        "copy_along",
        lambda x: us.repeat(x, [1, 2], axis=1),
        lambda x: np.repeat(x, [1, 2], axis=1),
        (complex_(2, 2),),
        "repeat columns",
    ),
    (
        "copy_along",
        lambda x: us.repeat(x, [1, 2], axis=1),
        lambda x: np.repeat(x, [1, 2], axis=1),
        (real(0, 2),),
        "size 0",
    ),
    *(
        (
            "copy_along",
            lambda x, mode=mode: us.pad(x, ((1, 3), (0, 2)), mode=mode),
            lambda x, mode=mode: np.pad(x, ((1, 3), (0, 2)), mode=mode),
            (array,),
            mode,
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
        for array in (real(2, 3), complex_(2, 1))
    ),
    (
        "sum_copies",
        lambda x: sum_copies(x, 0, "repeat", (2, 0, 1), 3),
        _sum_copies_reference,
        (real(3, 2),),
        "repeated",
    ),
    (
        "sum_copies",
        lambda x: sum_copies(x, 1, "wrap", (1, 1), 2),
        _sum_wrapped_reference,
        (complex_(2, 4),),
        "wrapped",
    ),
    ("reshape", us.kron, np.kron, (real(2), real(2, 2)), "kron"),
    ("reshape", us.kron, np.kron, (real(1, 2), complex_(2)), "kron of complex"),
)

DIAGONALS = _of(
    ("diagonal", us.diagonal, np.diagonal, (real(3, 3),), "main"),
    ("diagonal", lambda x: us.diagonal(x, 1), lambda x: np.diagonal(x, 1), (complex_(2, 3),), "above"),
    ("diagonal", lambda x: us.diagonal(x, -1, 2, 0), lambda x: np.diagonal(x, -1, 2, 0), (real(2, 2, 3),), "batched"),
    ("diagonal", lambda x: us.diagonal(x, 5), lambda x: np.diagonal(x, 5), (real(2, 2),), "outside"),
    ("diagonal", us.diagonal, np.diagonal, (real(0, 2),), "size 0"),
    ("diagonal", us.diagonal, np.diagonal, (real(1, 1),), "size 1"),
    ("diagonal", us.trace, np.trace, (real(3, 2),), "trace"),
    ("embed_diagonal", us.diag, np.diag, (real(3),), "main"),
    ("embed_diagonal", lambda x: us.diag(x, -2), lambda x: np.diag(x, -2), (complex_(1),), "below"),
    ("embed_diagonal", us.diag, np.diag, (real(0),), "size 0"),
    ("embed_diagonal", lambda x: us.diagflat(x, 1), lambda x: np.diagflat(x, 1), (real(),), "from 0-d"),
    ("tri_mask", us.tril, np.tril, (real(3, 2),), "lower"),
    ("tri_mask", lambda x: us.triu(x, 1), lambda x: np.triu(x, 1), (complex_(2, 3),), "upper"),
    ("tri_mask", lambda x: us.triu(x, -1), lambda x: np.triu(x, -1), (real(2, 2, 2),), "batched"),
    ("tri_mask", us.tril, np.tril, (real(0, 3),), "size 0"),
    ("tri_mask", us.tril, np.tril, (real(1, 1),), "size 1"),
)

SAMPLES = [*RESHAPING, *SHIFTING, *CROPPING, *JOINING, *REPEATING, *DIAGONALS]
