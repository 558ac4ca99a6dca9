"""The demonstrations by name: what each is about, its options, and how to make its story of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from unspool._cli import (
    demo_als,
    demo_ctmrg,
    demo_dmrg,
    demo_hypergradient,
    demo_ode,
    demo_scf,
    demo_sinkhorn,
    demo_tebd,
    demo_trg,
)

if TYPE_CHECKING:
    from unspool._cli.demo import Story

__all__ = ["DEFAULT", "DEMOS", "Demo"]

DEFAULT = "dmrg"


class Demo(NamedTuple):
    """A demonstration."""

    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    tell: Callable[[argparse.Namespace], Story]


DEMOS = {
    module.__name__.rpartition("demo_")[2]: Demo(module.SUMMARY, module.add_options, module.tell)
    for module in (
        demo_dmrg,
        demo_tebd,
        demo_trg,
        demo_ctmrg,
        demo_als,
        demo_sinkhorn,
        demo_hypergradient,
        demo_scf,
        demo_ode,
    )
}
