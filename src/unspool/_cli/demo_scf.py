"""``unspool demo scf``: electrons that feel each other's density, made consistent by DIIS.

A chain of sites with hopping 1, a repulsion U on each site, and a potential v. The energy of the mean field is least in
the orbitals, so its first derivatives are known at convergence: 2 n in the potential of a site, Σ n² in U. The second
one is the response of the density, for which the random-phase formula has a closed form in the orbitals at the end. The
loop knows neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, number
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "a self-consistent field of electrons on a chain, by DIIS"

COLUMNS = (Column("energy", ".12f", 19), Column("error"), Column("change"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the chain, the repulsion and how far DIIS looks back."""
    parser.add_argument("--sites", metavar="N", type=count(2), default=24, help="sites, with an electron each")
    parser.add_argument("--repulsion", metavar="X", type=number(0), default=2.0, help="the repulsion U")
    parser.add_argument("--potential", metavar="X", type=number(), default=0.5, help="size of the potential")
    parser.add_argument("--history", metavar="N", type=count(1), default=8, help="densities that DIIS looks at")
    add_common_options(parser, "scf", steps=200, tol=1e-10, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story

    potential = chosen.potential * np.cos(np.arange(float(chosen.sites)))
    exact = mean_field(chosen.repulsion, potential)

    def run(on_step: OnStep) -> Outcome:
        U, v = us.tensor(chosen.repulsion, name="U"), us.tensor(potential, name="v")
        density, error, energy, last = us.full(chosen.sites, 0.5), np.inf, us.zeros(()), 0.0
        tried: list[us.Tensor] = []
        errors: list[us.Tensor] = []
        for step in range(1, chosen.steps + 1):
            energy, new = fill_orbitals(U, v, density)
            off = new - density
            error = float(us.max(us.abs(off)))
            on_step(step, density, {"energy": float(energy), "error": error, "change": float(energy) - last})
            if error < chosen.tol:
                break
            last = float(energy)
            tried, errors = [*tried, new][-chosen.history :], [*errors, off][-chosen.history :]
            density = extrapolate(tried, errors)

        def tables(gradient: Any) -> Sequence[Table]:
            by_v, by_U = us.eval(gradient)
            response = gradient[0][0].grad(v).eval()
            firsts = [
                Comparison("in U = Σ n²", float(by_U), float(exact.density @ exact.density), ".10f"),
                *(
                    Comparison(f"in v of site {site}", float(slope), 2 * float(n), ".10f")
                    for site, (slope, n) in enumerate(zip(by_v, exact.density, strict=True), 1)
                ),
            ]
            seconds = [
                Comparison(f"in v of sites 1 and {site}", float(found), float(known), ".8f")
                for site, (found, known) in enumerate(zip(response, 2 * exact.response[0], strict=True), 1)
            ]
            return [
                compare("Energy", [Comparison("energy", float(energy), exact.energy)], heads=("", "loop", "by mixing")),
                compare("Gradient, through every step", firsts, heads=("", "loop", "at a minimum")),
                compare("Second derivative, through every step", seconds, heads=("", "loop", "random phase")),
            ]

        return Outcome(loss=energy, variable=(v, U), converged=error < chosen.tol, tables=tables)

    return Story(
        title=f"Self-consistent field: {chosen.sites} electrons on {chosen.sites} sites, U = {chosen.repulsion:g}",
        about="Density to orbitals to density, extrapolated by DIIS; then two derivatives of the energy through it.",
        run=run,
        columns=COLUMNS,
        quantity="energy",
        exact=exact.energy,
        step="step",
    )


def fill_orbitals(U: us.Tensor, v: us.Tensor, density: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Return energy and density of the orbitals in the field of a density, two electrons in each of the lowest."""
    hopping = _hopping(int(v.shape[0]))
    _, orbitals = us.linalg.eigh(hopping + us.diag(v + U * density))
    occupied = orbitals[:, : int(v.shape[0]) // 2]
    new = us.sum(occupied**2, axis=1)
    return 2 * us.sum(occupied * (hopping @ occupied)) + 2 * us.sum(v * new) + U * us.sum(new * new), new


def extrapolate(tried: Sequence[us.Tensor], errors: Sequence[us.Tensor]) -> us.Tensor:
    """Return the combination of densities whose errors cancel best, with weights that sum to 1 (P. Pulay, 1980)."""
    e = us.stack(list(errors))
    # In units of the last error, so that the system is not singular close to the end.
    overlaps = e @ e.T / us.sum(e[-1] ** 2)
    count = len(errors)
    bordered = us.block([[overlaps, us.ones((count, 1))], [us.ones((1, count)), us.zeros((1, 1))]])
    weights = us.linalg.solve(bordered, us.tensor([0.0] * count + [1.0]))[:count]
    return weights @ us.stack(list(tried))


class MeanField(NamedTuple):
    """What the loop should come to, by other means."""

    energy: float
    density: Any
    response: Any


def mean_field(U: float, v: Any, steps: int = 5000) -> MeanField:
    """Return energy, density and response of the density, by half-and-half mixing and the random-phase formula.

    Examples
    --------
    Two sites without a potential share their electrons: n = ½, and the energy is −2 + U/2.

    >>> found = mean_field(1.0, np.zeros(2))
    >>> round(found.energy, 12), found.density.round(12).tolist()
    (-1.5, [0.5, 0.5])
    """
    filled, hopping = len(v) // 2, _hopping(len(v))
    density = np.full(len(v), 0.5)
    for _ in range(steps):
        levels, orbitals = np.linalg.eigh(hopping + np.diag(v + U * density))
        new = np.sum(orbitals[:, :filled] ** 2, axis=1)
        if np.max(np.abs(new - density)) < 1e-14:
            break
        density = 0.5 * (density + new)
    occupied, empty = orbitals[:, :filled], orbitals[:, filled:]
    kinetic = np.sum(occupied * (hopping @ occupied))
    pairs = (occupied[:, :, None] * empty[:, None, :]).reshape(len(v), -1)
    bare = 2 * (pairs / np.subtract.outer(levels[:filled], levels[filled:]).ravel()) @ pairs.T
    response = bare @ np.linalg.inv(np.eye(len(v)) - U * bare)
    return MeanField(float(2 * kinetic + 2 * v @ new + U * new @ new), new, response)


def _hopping(sites: int) -> Any:
    return -(np.eye(sites, k=1) + np.eye(sites, k=-1))
