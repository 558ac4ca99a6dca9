"""Special functions, under the names of ``scipy.special``.

SciPy computes them; each has derivatives of every order in both modes. By a parameter for which there is no closed form
(the order of a Bessel function) a derivative raises `MissingRuleError`; those of the incomplete gamma and beta
functions are computed by quadrature. ``docs/special-functions.md`` has the whole list.

Examples
--------
>>> import unspool as us
>>> a, x = us.tensor(2.0), us.tensor(1.5)
>>> p = us.special.gammainc(a, x)
>>> p.eval()
array(0.4421746)
>>> [slope.eval() for slope in p.grad([a, x])]
[array(-0.31348864), array(0.33469524)]
"""

from unspool._ops.elementwise import cbrt, digamma, erf, erfc, exp2, expm1, gammaln, log1p, polygamma, sinc, xlogy
from unspool._ops.reduction.exponentials import log_softmax, logsumexp, softmax
from unspool._ops.special.bessel import (
    i0,
    i0e,
    i1,
    i1e,
    iv,
    ive,
    j0,
    j1,
    jn,
    jv,
    k0,
    k0e,
    k1,
    k1e,
    kv,
    kve,
    y0,
    y1,
    yn,
    yv,
)
from unspool._ops.special.entropy import entr, expit, kl_div, log_expit, logit, rel_entr, xlog1py
from unspool._ops.special.faddeeva import dawsn, wofz
from unspool._ops.special.gamma import (
    beta,
    betaln,
    binom,
    comb,
    factorial,
    gamma,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    rgamma,
    zeta,
)
from unspool._ops.special.harmonics import sph_harm_y
from unspool._ops.special.incomplete import (
    betainc,
    betaincc,
    betaincinv,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
)
from unspool._ops.special.integrals import exp1, expi, expn, fresnel, hyp1f1, hyp2f1, sici, spence
from unspool._ops.special.normal import erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri, owens_t
from unspool._ops.special.power_transforms import boxcox, boxcox1p
from unspool._ops.special.student import stdtr, stdtrit

psi = digamma

__all__ = [
    "beta",
    "betainc",
    "betaincc",
    "betaincinv",
    "betaln",
    "binom",
    "boxcox",
    "boxcox1p",
    "cbrt",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp1",
    "exp2",
    "expi",
    "expit",
    "expm1",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "jv",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "kv",
    "kve",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "psi",
    "rel_entr",
    "rgamma",
    "sici",
    "sinc",
    "softmax",
    "spence",
    "sph_harm_y",
    "stdtr",
    "stdtrit",
    "wofz",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "yv",
    "zeta",
]


def __dir__() -> list[str]:
    return sorted(__all__)
