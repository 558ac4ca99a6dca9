"""Samples of quotients with a remainder and of how numbers are represented, away from where they jump."""

from __future__ import annotations

import numpy as np

import unspool as us
from tests.samples import Sample
from tests.samples.elementwise import binary

# No quotient of these is near an integer.
DIVIDENDS = np.array([[1.7, -5.3, 4.2], [0.3, 2.6, -1.2]])
DIVISORS = np.array([1.3, -0.8, 2.9])
INTEGERS = np.array([-12, 0, 7, 30])

SAMPLES = [
    Sample("fmod", us.fmod, (DIVIDENDS, DIVISORS), np.fmod),
    Sample("fmod", us.fmod, (DIVIDENDS, np.array(1.37)), np.fmod),
    Sample("fmod", us.fmod, (np.array(5.2), np.array([-1.5])), np.fmod),
    Sample("fmod", us.fmod, (INTEGERS, np.array(5)), np.fmod, order=0),
    Sample("remainder", us.mod, (DIVIDENDS, DIVISORS), np.mod, label="mod"),
    Sample("remainder", lambda x, y: us.divmod(x, y)[1], (DIVIDENDS, DIVISORS), np.mod, label="divmod"),
    Sample("where", lambda x: us.modf(x)[0], (DIVIDENDS,), lambda x: np.modf(x)[0], label="modf"),
    Sample("gcd", us.gcd, (INTEGERS, np.array([8, 3, 14, -12])), np.gcd, order=0),
    Sample("lcm", us.lcm, (INTEGERS, np.array([[8], [3]])), np.lcm, order=0),
    *binary("nextafter", np.nextafter),
    Sample("spacing", us.spacing, (DIVIDENDS,), np.spacing),
    Sample("ldexp", lambda x: us.ldexp(x, [3, -1, 0]), (DIVIDENDS,), lambda x: np.ldexp(x, [3, -1, 0])),
    Sample("ldexp", lambda x: us.ldexp(x, 2), (DIVISORS,), lambda x: np.ldexp(x, 2), label="number"),
    Sample("ldexp", lambda x: us.frexp(x)[0], (DIVIDENDS,), lambda x: np.frexp(x)[0], label="mantissa"),
    Sample("exponent", lambda x: us.frexp(x)[1], (DIVIDENDS,), lambda x: np.frexp(x)[1], order=0),
    Sample("bitwise_count", us.bitwise_count, (INTEGERS,), np.bitwise_count, order=0),
    Sample("power", us.float_power, (np.abs(DIVIDENDS), DIVISORS), np.float_power, label="float_power"),
    Sample("where", us.heaviside, (DIVIDENDS, DIVISORS), np.heaviside, label="heaviside"),
    Sample("abs", us.fabs, (DIVIDENDS,), np.fabs, label="fabs"),
]
