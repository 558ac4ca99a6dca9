"""Samples of ``contract``: every path of its kernel, written the ways users write products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real


def einsum(subscripts: str, *args: Any, exact: bool = False, label: str = "") -> Sample:
    return Sample(
        "contract",
        lambda *tensors: us.einsum(subscripts, *tensors),
        args,
        lambda *arrays: np.einsum(subscripts, *arrays),
        exact=exact,
        label=label or subscripts,
    )


SIZES = {"a": 2, "b": 3, "c": 2, "d": 1, "z": 0}

# One line per path: vectors, matrices in all orientations, outer products, stacks, groups of several labels.
PATHS = [
    "a,a->",
    "ab,b->a",
    "ba,b->a",
    "b,ba->a",
    "ab,bc->ac",
    "ab,cb->ac",
    "ba,bc->ac",
    "ba,cb->ca",
    "ab,bc->ca",
    "a,b->ab",
    "a,b->ba",
    ",ab->ba",
    "ab,a->ba",
    "ab,ab->",
    "ab,ba->",
    "ab,ab->a",
    "ca,ca->a",
    "cab,cb->ca",
    "cab,cbd->cad",
    "abc,cbd->dac",
    "acb,abd->cd",
    "acd,cd->a",
    "ac,dac->d",
    "cab,acd->bd",
    "acb,ca->b",
]


def every_path() -> Iterator[Sample]:
    for subscripts in PATHS:
        first, second = subscripts.split("->")[0].split(",")
        shapes = [[SIZES[label] for label in labels] for labels in (first, second)]
        yield einsum(subscripts, real(*shapes[0], seed=1), real(*shapes[1], seed=2), exact=True)


SAMPLES = [
    *every_path(),
    # complex numbers, alone and with real ones
    einsum("ab,bc->ac", complex_(2, 2, seed=1), complex_(2, 1, seed=2)),
    einsum("ab,b->a", real(2, 2, seed=1), complex_(2, seed=2)),
    einsum("a,a->", complex_(3, seed=1), real(3, seed=2)),
    einsum("cab,cbd->dca", complex_(1, 2, 2, seed=1), complex_(1, 2, 1, seed=2)),
    # empty and single axes
    einsum("ab,bc->ac", real(2, 0), real(0, 2), exact=True, label="empty-sum"),
    einsum("ab,bc->ac", real(0, 2), real(2, 1), exact=True, label="empty-result"),
    einsum("cab,cbd->cad", real(0, 1, 2), real(0, 2, 1), exact=True, label="empty-batch"),
    einsum("a,a->", real(0), real(0), exact=True, label="empty-dot"),
    einsum("ab,bc->ac", real(1, 1, seed=1), real(1, 1, seed=2), exact=True, label="ones"),
    # three and more operands, an axis of size 1 that broadcasts, diagonals
    einsum("ab,bc,c->a", real(2, 2, seed=1), real(2, 2, seed=2), real(2, seed=3), exact=True),
    einsum("ab,ac,ad->bcd", real(2, 1, seed=1), real(2, 2, seed=2), real(2, 1, seed=3), exact=True),
    einsum("ab,bc->ac", real(2, 1, seed=1), real(3, 2, seed=2), label="broadcast"),
    einsum("aab,b->a", real(2, 2, 2, seed=1), real(2, seed=2), label="diagonal"),
    einsum("...a,...a->...", real(2, 1, 2, seed=1), real(2, 2, seed=2), label="ellipsis"),
    # the other ways to write a contraction
    Sample("contract", us.matmul, (real(2, 3, seed=1), real(3, 2, seed=2)), np.matmul, exact=True, label="matmul"),
    Sample("contract", us.matmul, (real(2, 1, 1, 2, seed=1), real(2, 2, 2, seed=2)), np.matmul, label="matmul-stacks"),
    Sample("contract", us.matmul, (real(2, seed=1), real(3, 2, 1, seed=2)), np.matmul, label="matmul-vector"),
    Sample("contract", us.tensordot, (real(2, 2, seed=1), real(2, 2, 1, seed=2)), np.tensordot, label="tensordot"),
    Sample("contract", us.inner, (real(2, 2, seed=1), real(3, 2, seed=2)), np.inner, exact=True, label="inner"),
    Sample("contract", us.outer, (real(2, seed=1), complex_(2, seed=2)), np.outer, label="outer"),
    Sample("contract", us.dot, (real(2, 2, seed=1), real(1, 2, 2, seed=2)), np.dot, exact=True, label="dot"),
    Sample("contract", us.vecdot, (complex_(2, 2, seed=1), complex_(2, seed=2)), np.vecdot, label="vecdot"),
    Sample("contract", us.vdot, (complex_(2, 1, seed=1), complex_(1, 2, seed=2)), np.vdot, label="vdot"),
]
