"""The loops that tensor-network and decomposition people run, in plain Python, and differentiable to the end.

Each is written as a user would write it: values are read on the way, ranks are chosen from spectra, the loop stops when
it has converged. So each is also an example of how to write the next one. States are nested structures (pytrees),
results are named tuples, and ``on_step`` is called after every step with what was reached.

Chains: `MPS`, `MPO`, models, `dmrg`, `tebd`. Planes: `trg`, `hotrg`, `ctmrg`, `ipeps_energy`. Decompositions: `cp_als`,
`hooi`, `tt_svd`, `tt_als`. Transport: `sinkhorn`. Matrices: `newton_schulz_polar`, `power_iteration` and their kin.
`minimise` hands a loss to SciPy.

Examples
--------
>>> import unspool as us
>>> J = us.ones(9)
>>> found = us.networks.dmrg(us.networks.heisenberg(J), us.networks.random_mps(10, 2, 4), rank=32)
>>> bool(abs(float(found.energy) - us.networks.bethe_energy(10)) < 1e-10)
True
>>> gradient = found.energy.grad(J)  # through all sweeps: the correlation of the spins at each bond
>>> gradient.eval().round(4)[:3]
array([-0.6581, -0.2884, -0.5784])
"""

from unspool.networks.als import CP, CPResult, cp_als, random_cp
from unspool.networks.chain import (
    MPO,
    MPS,
    Compressed,
    apply,
    bond_expectation,
    compress,
    correlations,
    expectation,
    local_expectation,
    overlap,
    product_state,
    random_mps,
)
from unspool.networks.ctmrg import CTMRGResult, ctmrg
from unspool.networks.dmrg import DMRGResult, dmrg
from unspool.networks.exact import IsingGradient, aklt_state, bethe_energy, ising_chain_energy, ising_chain_gradient
from unspool.networks.ipeps import IPEPSResult, bond_density, double_layer, heisenberg_bond, ipeps_energy
from unspool.networks.lattice import (
    Environment,
    IsingSite,
    ising_site,
    partition_per_site,
    product_environment,
    site_expectation,
    symmetrise,
)
from unspool.networks.matrix import (
    PolarResult,
    PowerResult,
    SignResult,
    SubspaceResult,
    newton_schulz_polar,
    newton_schulz_sign,
    power_iteration,
    subspace_iteration,
)
from unspool.networks.models import (
    SpinOperators,
    aklt,
    aklt_bonds,
    heisenberg,
    heisenberg_bonds,
    ising,
    ising_bonds,
    spin_operators,
    xxz,
    xxz_bonds,
)
from unspool.networks.optimise import MinimiseResult, minimise, progress_line
from unspool.networks.tebd import TEBDResult, tebd, trotter_steps
from unspool.networks.tensor_train import TensorTrain, TensorTrainResult, random_train, tt_als, tt_svd
from unspool.networks.terms import mpo_from_bonds, mpo_from_terms
from unspool.networks.transport import SinkhornResult, sinkhorn, soft_transform
from unspool.networks.trg import Onsager, TRGResult, hotrg, ising_tensor, onsager, trg
from unspool.networks.tucker import Tucker, TuckerResult, hooi, hosvd

__all__ = [
    "CP",
    "MPO",
    "MPS",
    "CPResult",
    "CTMRGResult",
    "Compressed",
    "DMRGResult",
    "Environment",
    "IPEPSResult",
    "IsingGradient",
    "IsingSite",
    "MinimiseResult",
    "Onsager",
    "PolarResult",
    "PowerResult",
    "SignResult",
    "SinkhornResult",
    "SpinOperators",
    "SubspaceResult",
    "TEBDResult",
    "TRGResult",
    "TensorTrain",
    "TensorTrainResult",
    "Tucker",
    "TuckerResult",
    "aklt",
    "aklt_bonds",
    "aklt_state",
    "apply",
    "bethe_energy",
    "bond_density",
    "bond_expectation",
    "compress",
    "correlations",
    "cp_als",
    "ctmrg",
    "dmrg",
    "double_layer",
    "expectation",
    "heisenberg",
    "heisenberg_bond",
    "heisenberg_bonds",
    "hooi",
    "hosvd",
    "hotrg",
    "ipeps_energy",
    "ising",
    "ising_bonds",
    "ising_chain_energy",
    "ising_chain_gradient",
    "ising_site",
    "ising_tensor",
    "local_expectation",
    "minimise",
    "mpo_from_bonds",
    "mpo_from_terms",
    "newton_schulz_polar",
    "newton_schulz_sign",
    "onsager",
    "overlap",
    "partition_per_site",
    "power_iteration",
    "product_environment",
    "product_state",
    "progress_line",
    "random_cp",
    "random_mps",
    "random_train",
    "sinkhorn",
    "site_expectation",
    "soft_transform",
    "spin_operators",
    "subspace_iteration",
    "symmetrise",
    "tebd",
    "trg",
    "trotter_steps",
    "tt_als",
    "tt_svd",
    "xxz",
    "xxz_bonds",
]


def __dir__() -> list[str]:
    return sorted(__all__)
