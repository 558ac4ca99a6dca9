"""A singular value decomposition for PyTorch whose derivatives survive equal values.

PyTorch's own rules divide by differences of singular values, also of those that the program drops, and 0/0 is NaN. What
users of tensor networks write instead, since H.-J. Liao, J.-G. Liu, L. Wang and T. Xiang, Phys. Rev. X 9, 031041
(2019), is an ``autograd.Function`` with the rule for U, S and V in which the division by a vanishing gap gives zero. In
theirs 1/d is d/(d² + 1e-12) for a gap d, which costs digits; here gaps that are rounding are left out and all others
are exact, so that eight digits can be asked for. The backward pass is made of differentiable operations on saved
outputs, so second derivatives work too.

Imports PyTorch: import this inside ``make``.
"""

from __future__ import annotations

from typing import Any

import torch

# Gaps below this much of the largest value are rounding.
ROUNDING = 1e-13


def inverse(gaps: Any, scale: Any) -> Any:
    """Return 1/x, and zero where x is nothing but rounding; differentiable."""
    vanishing = gaps.abs() <= ROUNDING * scale
    return torch.where(vanishing, 0.0, 1.0 / torch.where(vanishing, 1.0, gaps))


class SafeSVD(torch.autograd.Function):
    """U, S and Vh of a square matrix."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        """Decompose."""
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, u_bar: Any, s_bar: Any, vh_bar: Any) -> Any:
        """Return the cotangent of the matrix; in the skew parts of X = Uᵀ·Ū and Y = Vᵀ·V̄, divided by the gaps."""
        u, s, vh = ctx.saved_tensors
        x, y = u.mT @ u_bar, vh @ vh_bar.mT
        x, y = (x - x.mT) / 2, (y - y.mT) / 2
        scale = s.detach()[0]
        middle = (x + y) * inverse(s - s[:, None], scale) + (x - y) * inverse(s + s[:, None], scale)
        return u @ (middle + torch.diag(s_bar)) @ vh


def safe_svd(a: Any) -> Any:
    """Return U, S and Vh of a square matrix."""
    return SafeSVD.apply(a)
