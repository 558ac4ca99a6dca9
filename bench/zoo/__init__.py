"""Loops of the kinds that people write, each in unspool and in PyTorch; `run.py` measures them.

A kind stands for thousands of programs that are like it, and the library must not know of any: what is done for a kind
has to be done for all loops of its sort. The tests of the repository use the kinds as well.
"""

from bench.zoo import descent, dynamics, iterations, sampling, sequences, textbook
from bench.zoo.kind import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for module in (descent, sequences, iterations, dynamics, sampling, textbook)
    for kind in vars(module).values()
    if isinstance(kind, Kind)
}
