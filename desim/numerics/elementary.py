"""Exponential, logarithm and sine/cosine as branch-free polynomials.

The C library's are scalar (4 ns each) and differ between machines; these vectorise inside a loop
(0.7 ns) and use only IEEE +, -, *, / and bit operations: their bits are the same everywhere. They
take numbers and lanes (desim.numerics.lanes).
"""

import numpy as np

from desim.numerics.jit import inline
from desim.numerics.lanes import bits_of, float_of, pick

MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer held in the low bits
LOG2E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
_F11, _F12, _F13 = 1 / 39916800, 1 / 479001600, 1 / 6227020800
HALF_PI = 1.5707963267948966

_1 = np.uint64(1)
_2 = np.uint64(2)
_52 = np.uint64(52)
_62 = np.uint64(62)
_1023 = np.uint64(1023)
_FRACTION = np.uint64(0x000FFFFFFFFFFFFF)
_ROOT_HALF = np.uint64(0x3FE6A09E00000000)  # high word of sqrt(1/2)
_TO_ONE = np.uint64(0x3FF0000000000000 - 0x3FE6A09E00000000)
_TWO52_BITS = np.uint64(0x4330000000000000)
_TWO52_PLUS_BIAS = 4503599627370496.0 + 1023.0


@inline
def exp_(x):
    """e^x to 1 unit in the last place, x cut to [-708, 709]: never 0 or inf; NaN stays NaN."""
    x = pick(x < -708.0, -708.0, x)
    x = pick(x > 709.0, 709.0, x)
    k = x * LOG2E + MAGIC
    n = k - MAGIC
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    s = r * r
    even = 1 / 2 + s * (1 / 24 + s * (1 / 720 + s * (1 / 40320 + s * (1 / 3628800 + s * _F12))))
    odd = 1 / 6 + s * (1 / 120 + s * (1 / 5040 + s * (1 / 362880 + s * (_F11 + s * _F13))))
    p = 1.0 + (r + s * (even + r * odd))
    return p * float_of((bits_of(k) + _1023) << _52)


@inline
def log_(x):
    """Natural logarithm to 1 unit in the last place, of a normal x > 0 (fdlibm's e_log.c)."""
    bits = bits_of(x) + _TO_ONE
    k = float_of((bits >> _52) | _TWO52_BITS) - _TWO52_PLUS_BIAS
    f = float_of((bits & _FRACTION) + _ROOT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    p = w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    t2 = z * (0.6666666666666735130 + p)
    h = 0.5 * f * f
    return k * LN2_HIGH - ((h - (s * (h + t1 + t2) + k * LN2_LOW)) - f)


@inline
def _sine_tail(z):
    return -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10


@inline
def _cosine_tail(z):
    return 2.08757232129817482790e-09 - z * 1.13596475577881948265e-11


@inline
def sincos_turn(u):
    """(sin 2 pi u, cos 2 pi u), |u| < 2^49, reduced exactly (fdlibm's k_sin.c, k_cos.c)."""
    k = 4.0 * u + MAGIC
    quadrant = bits_of(k)
    r = (4.0 * u - (k - MAGIC)) * HALF_PI
    z = r * r
    p = z * (-1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 + z * _sine_tail(z)))
    sine = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + p))
    p = z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * _cosine_tail(z)))
    q = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + p))
    cosine = 1.0 - (0.5 * z - z * q)
    swap = (quadrant & _1) == _1
    first = pick(swap, cosine, sine)
    second = pick(swap, sine, cosine)
    return (
        float_of(bits_of(first) ^ ((quadrant & _2) << _62)),
        float_of(bits_of(second) ^ (((quadrant + _1) & _2) << _62)),
    )
