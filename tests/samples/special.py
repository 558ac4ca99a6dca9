"""Samples of special functions, away from poles; parameters without a derivative are whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import unspool as us
from tests.samples import Sample, real
from unspool._ops.special import harmonics, incomplete, quadrature
from unspool._ops.special.normal import scaled_integral

UNARY: list[tuple[str, float, float]] = [
    ("erfinv", -0.8, 0.8),
    ("erfcinv", 0.2, 1.8),
    ("ndtri", 0.1, 0.9),
    ("ndtr", -2.0, 2.0),
    ("log_ndtr", -4.0, 2.0),
    ("logit", 0.2, 0.8),
    ("entr", 0.3, 2.0),
    ("gamma", 0.7, 4.0),
    ("gammasgn", 0.3, 4.0),
    ("exp1", 0.4, 3.0),
    ("expi", 0.4, 3.0),
    ("spence", 0.3, 2.0),
    ("dawsn", -2.0, 2.0),
    ("rgamma", 0.2, 4.0),
    *[(name, 0.5, 4.0) for name in ("j0", "j1", "y0", "y1", "i0", "i0e", "i1", "i1e", "k0", "k0e", "k1", "k1e")],
]
SAMPLES: list[Sample] = []
for name, low, high in UNARY:
    for shape in ((3,), (2, 1), ()):
        x = real(*shape, low=low, high=high)
        SAMPLES.append(Sample(name, getattr(us.special, name), (x,), getattr(special, name)))
for name in ("j0", "j1", "i0", "i1", "spence", "erfinv", "ndtr", "log_ndtr"):
    x = np.array([1.0]) if name == "spence" else np.array([0.0])
    SAMPLES.append(Sample(name, getattr(us.special, name), (x,), getattr(special, name), label="special-point"))

# --- two and three arguments -----------------------------------------------------------------------------------------

BINARY: list[tuple[str, tuple[float, float], tuple[float, float]]] = [
    ("xlog1py", (-2.0, 2.0), (-0.5, 2.0)),
    ("rel_entr", (0.3, 2.0), (0.3, 2.0)),
    ("kl_div", (0.3, 2.0), (0.3, 2.0)),
    ("beta", (0.6, 3.0), (0.6, 3.0)),
    ("betaln", (0.6, 3.0), (0.6, 3.0)),
    ("poch", (0.6, 3.0), (0.6, 3.0)),
    ("binom", (2.6, 5.0), (0.3, 1.8)),
    ("owens_t", (-2.0, 2.0), (-3.0, 3.0)),
    ("gammainc", (0.4, 4.0), (0.4, 4.0)),
    ("gammaincc", (0.4, 4.0), (0.4, 4.0)),
    ("stdtr", (0.8, 5.0), (-3.0, 3.0)),
    ("stdtrit", (0.8, 5.0), (0.1, 0.9)),
]
for name, first, second in BINARY:
    for left, right in (((3,), (3,)), ((2, 1), (2,)), ((), (1, 0))):
        args = real(*left, seed=1, low=first[0], high=first[1]), real(*right, seed=2, low=second[0], high=second[1])
        SAMPLES.append(Sample(name, getattr(us.special, name), args, getattr(special, name)))
PARAMETERS = real(3, seed=1, low=0.5, high=3.0), real(2, 1, seed=2, low=0.5, high=3.0)
LEVELS = np.array([0.3, 0.5, 0.8])
for name in ("betainc", "betaincinv"):
    SAMPLES.append(Sample(name, getattr(us.special, name), (*PARAMETERS, LEVELS), getattr(special, name)))


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*[a.astype(float) for a in arrays]).astype(np.result_type(*arrays))


SAMPLES += [
    Sample(
        "log_gamma_quantile",
        incomplete.log_gamma_quantile,
        (PARAMETERS[0], LEVELS),
        in_double(lambda a, p: np.log(special.gammaincinv(a, p))),
    ),
    Sample(
        "log_gamma_quantile",
        lambda a, p: incomplete.log_gamma_quantile(a, p, upper=True),
        (PARAMETERS[0], LEVELS),
        in_double(lambda a, p: np.log(special.gammainccinv(a, p))),
        label="upper",
    ),
    # At a = 1, and at b = 1, the functions are elementary: so are their derivatives by the parameter.
    Sample(
        "gamma_ratio",
        lambda a, w: us.special.gammainc(a, us.exp(w)).grad(a),
        (np.array(1.0), np.array(0.3)),
        in_double(lambda a, w: -special.exp1(np.exp(w)) - np.exp(-np.exp(w)) * (w + np.euler_gamma) + 0 * (a - 1)),
        order=1,
        label="elementary",
    ),
    Sample(
        "gamma_ratio",
        lambda a, w: incomplete.gamma_ratio(a, w, 2),
        (PARAMETERS[0], real(2, 1, seed=5)),
        in_double(lambda a, w: quadrature.gamma_ratio(a, w, 2)),
        order=1,
        label="second-order",
    ),
    Sample(
        "beta_ratio",
        lambda a, b, w: incomplete.beta_ratio(a, b, w, (1, 1)),
        (*PARAMETERS, real(3, seed=5)),
        in_double(lambda a, b, w: quadrature.beta_ratio(a, b, w, (1, 1))),
        order=1,
        label="mixed-order",
    ),
]

# --- with an order or parameters that are whole ----------------------------------------------------------------------

for name in ("jv", "yv", "iv", "ive", "kv", "kve"):
    ours, theirs = getattr(us.special, name), getattr(special, name)
    for label, order, shape in (("order0", 0, (3,)), ("order2", 2, (3,)), ("orders", np.array([[1], [3]]), (2,))):
        SAMPLES.append(
            Sample(
                name,
                lambda x, f=ours, v=order: f(v, x),
                (real(*shape, low=0.6, high=4.0),),
                lambda x, f=theirs, v=order: f(v, x).astype(x.dtype),
                label=label,
            )
        )
for order in (0, 1, 3):
    SAMPLES.append(
        Sample(
            "expn",
            lambda x, n=order: us.special.expn(n, x),
            (real(3, low=0.5, high=3.0),),
            lambda x, n=order: special.expn(n, x).astype(x.dtype),
            label=f"order{order}",
        )
    )
SAMPLES += [
    Sample(
        "zeta",
        lambda q: us.special.zeta(np.array([2, 3]), q),
        (real(2, 1, low=0.6, high=3.0),),
        lambda q: special.zeta(np.array([2, 3]), q).astype(q.dtype),
    ),
    Sample(
        "hyp1f1",
        lambda x: us.special.hyp1f1(np.array([1, 2]), np.array(3), x),
        (real(2),),
        lambda x: special.hyp1f1(np.array([1, 2]), np.array(3), x).astype(x.dtype),
    ),
    Sample(
        "hyp2f1",
        lambda x: us.special.hyp2f1(np.array([1, 2]), np.array(2), np.array(3), x),
        (real(2, low=-0.7, high=0.7),),
        lambda x: special.hyp2f1(np.array([1, 2]), np.array(2), np.array(3), x).astype(x.dtype),
    ),
]
for index, kind in enumerate(("sine", "cosine")):
    SAMPLES += [
        Sample(
            f"fresnel_{kind}",
            lambda x, i=index: us.special.fresnel(x)[i],
            (real(3),),
            lambda x, i=index: special.fresnel(x)[i],
        ),
        Sample(
            f"{kind}_integral",
            lambda x, i=index: us.special.sici(x)[i],
            (real(3, low=0.5, high=5.0),),
            lambda x, i=index: special.sici(x)[i],
        ),
    ]

# --- scaled integrals of the error function --------------------------------------------------------------------------


def by_integration(x: Any, n: int) -> Any:
    """Return e^{x²}·iⁿerfc(x) as 2/√π·∫ (t-x)ⁿ/n!·e^{x²-t²} over t > x, by Gauss' rule."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    s = 5 * (nodes + 1)  # t = x + s, up to s = 10
    values = s**n / special.factorial(n) * np.exp(-s * (s + 2 * x[..., None].astype(float)))
    return (5 * 2 / np.sqrt(np.pi) * values @ weights).astype(x.dtype)


for n in (0, 1, 3):
    SAMPLES.append(
        Sample(
            "erfcx",
            lambda x, n=n: scaled_integral(x, n),
            (np.array([-1.5, 0.3, 1.2, 2.6, 6.0]),),
            lambda x, n=n: by_integration(x, n),
            label=f"integral{n}",
        )
    )


# --- complex numbers, and harmonics ----------------------------------------------------------------------------------

POINTS = real(3, seed=3, low=-1.5, high=1.5) + 1j * real(3, seed=4, low=-0.5, high=1.5)
SAMPLES.append(Sample("wofz", us.special.wofz, (POINTS,), special.wofz))
for degree, order in ((0, 0), (1, -1), (3, 2), (4, 4)):
    SAMPLES.append(
        Sample(
            "polar_harmonic",
            lambda theta, n=degree, m=order: harmonics.polar_harmonic(n, m, theta),
            (np.array([0.1, 0.4, 1.3, 2.9]),),
            in_double(lambda theta, n=degree, m=order: special.sph_harm_y(n, m, theta, 0.0).real),
            label=f"{degree},{order}",
        )
    )
