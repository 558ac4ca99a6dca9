"""What ``unspool check`` runs: small functions that go through every part of the library, and where to check them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import unspool as us

__all__ = ["CHECKS", "Check"]


@dataclass(frozen=True)
class Check:
    """A function, the point to check it at, and the highest derivative to look at."""

    name: str
    function: Callable[..., Any]
    at: tuple[Any, ...]
    order: int = 2
    modes: tuple[str, ...] = ("reverse", "forward")


def _points(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    """Return positive numbers, the same every time."""
    rng = np.random.default_rng(1)
    return tuple(rng.uniform(0.5, 1.5, shape) for shape in shapes)


def _symmetric(x: us.Tensor) -> us.Tensor:
    return x + x.mT


def _elementwise(x: us.Tensor, y: us.Tensor) -> us.Tensor:
    return us.sin(x) * us.exp(-y) + us.log1p(x * y) + us.tanh(x / y) + us.logaddexp(x, y)


def _reduction(x: us.Tensor) -> us.Tensor:
    return us.logsumexp(x, axis=0) * us.mean(x, axis=1) + us.std(x) + us.prod(x, axis=0)


def _indexing(x: us.Tensor) -> us.Tensor:
    return us.cumsum(x.at[1].multiply(x[0]), axis=0)[::2] + us.sort(x, axis=1)[:2]


def _complex(x: us.Tensor, y: us.Tensor) -> us.Tensor:
    z = x + 1j * y
    return us.abs(us.exp(z) @ us.conj(z).mT)


def _contraction(x: us.Tensor, y: us.Tensor, z: us.Tensor) -> us.Tensor:
    return us.einsum("iab,jbc,kca->ijk", x, y, z)


def _singular_values(x: us.Tensor) -> us.Tensor:
    return us.linalg.svdvals(x)


def _truncated(x: us.Tensor) -> us.Tensor:
    u, s, vh = us.linalg.truncated_svd(x, rank=2)
    return (u * s) @ vh


def _polar_factor(x: us.Tensor) -> us.Tensor:
    """The orthogonal factor: smooth where singular values are equal, though the singular vectors are not."""
    u, _, vh = us.linalg.truncated_svd(x, rank=3)
    return us.sum(us.tanh(u @ vh) * np.arange(9.0).reshape(3, 3))


def _eigenvalues(x: us.Tensor) -> us.Tensor:
    values, vectors = us.linalg.eigh(_symmetric(x))
    return (vectors * us.exp(-values)) @ vectors.mT


def _orthogonal(x: us.Tensor) -> us.Tensor:
    q, r = us.linalg.qr(x)
    return us.asarray(q @ us.tanh(r.mT @ r))


def _solve(x: us.Tensor, b: us.Tensor) -> us.Tensor:
    return us.linalg.solve(x + 4.0 * np.eye(3), b) + us.linalg.slogdet(x + 4.0 * np.eye(3))[1]


def _matrix_exponential(x: us.Tensor) -> us.Tensor:
    return us.linalg.matrix_exp(x)


def _lanczos(x: us.Tensor) -> us.Tensor:
    a = _symmetric(x)
    return us.linalg.eigsh(lambda v: a @ v, v0=np.ones(x.shape[0]), k=1)[0]


def _plain_loop(a: us.Tensor) -> us.Tensor:
    """Power iteration, stopped by looking at its values."""
    x, last = us.ones(a.shape[0]), 0.0
    for _ in range(200):
        y = a @ x
        norm = us.linalg.norm(y)
        x = y / norm
        if abs(float(norm) - last) < 1e-13:
            break
        last = float(norm)
    return x @ a @ x


def _iterate(a: us.Tensor) -> us.Tensor:
    """Square roots by Newton's method, in one call."""
    root, _ = us.iterate(lambda x: (x + a / x) / 2, a, until=lambda x: us.max(us.abs(x * x - a)) < 1e-14, max_steps=50)
    return us.asarray(root)


def _fixed_point(a: us.Tensor) -> us.Tensor:
    found, _ = us.fixed_point(lambda x: us.cos(a * x) / 2, us.ones_like(a))
    return us.asarray(found)


# --- the algorithms, a few steps of each ------------------------------------------------------------------------------


def _dmrg(couplings: us.Tensor) -> us.Tensor:
    from unspool.networks.chain import random_mps
    from unspool.networks.dmrg import dmrg
    from unspool.networks.models import heisenberg

    return dmrg(heisenberg(couplings), random_mps(4, 2, 2), rank=3, tol=0.0, max_steps=2).energy


def _tebd(fields: us.Tensor) -> us.Tensor:
    from unspool.networks.chain import product_state
    from unspool.networks.models import ising_bonds
    from unspool.networks.tebd import tebd

    return tebd(ising_bonds(np.ones(3), fields), product_state([[1.0, 1.0]] * 4), steps=4, rank=3).energy


def _trg(beta: us.Tensor) -> us.Tensor:
    from unspool.networks.trg import trg

    return trg(beta, rank=4, steps=6).log_partition


def _ctmrg(beta: us.Tensor) -> us.Tensor:
    from unspool.networks.ctmrg import ctmrg
    from unspool.networks.lattice import ising_site, product_environment, site_expectation

    site = ising_site(beta)
    found = ctmrg(site.bulk, rank=4, tol=0.0, max_steps=8, start=product_environment(site.up))
    return site_expectation(site.bulk, site.spin, found.state)


def _cp_als(data: us.Tensor) -> us.Tensor:
    from unspool.networks.als import cp_als

    return cp_als(data, 2, tol=0.0, max_steps=3).fit


def _sinkhorn(cost: us.Tensor, epsilon: us.Tensor) -> us.Tensor:
    from unspool.networks.transport import sinkhorn

    return sinkhorn(cost, np.full(3, 1 / 3), [0.5, 0.3, 0.2], regularisation=epsilon, tol=0.0, max_steps=10).cost


CHECKS = (
    Check("elementwise", _elementwise, _points((3,), (3,))),
    Check("reduction", _reduction, _points((3, 3))),
    Check("indexing", _indexing, _points((3, 3))),
    Check("complex numbers", _complex, _points((2, 2), (2, 2))),
    Check("contraction", _contraction, _points((2, 2, 3), (2, 3, 2), (2, 2, 2))),
    Check("singular values", _singular_values, _points((3, 4))),
    Check("truncated svd", _truncated, _points((4, 3))),
    Check("equal singular values", _polar_factor, (np.eye(3),), order=1, modes=("reverse",)),
    Check("eigh", _eigenvalues, _points((3, 3))),
    Check("qr", _orthogonal, _points((4, 3))),
    Check("solve", _solve, _points((3, 3), (3,))),
    Check("matrix exponential", _matrix_exponential, _points((3, 3))),
    Check("lanczos", _lanczos, _points((8, 8))),
    Check("loop in plain Python", _plain_loop, _points((4, 4))),
    Check("iterate", _iterate, _points((3,))),
    Check("fixed point", _fixed_point, _points((3,))),
    Check("dmrg", _dmrg, _points((3,)), order=1, modes=("reverse",)),
    Check("tebd", _tebd, _points((4,)), order=1, modes=("reverse",)),
    Check("trg", _trg, (np.array(0.4),), modes=("reverse",)),
    Check("ctmrg", _ctmrg, (np.array(0.6),), modes=("reverse",)),
    Check("cp-als", _cp_als, _points((3, 3, 3)), order=1),
    Check("sinkhorn", _sinkhorn, (*_points((3, 3)), np.array(0.5))),
)
