"""Activations for the compiled step, written so that the compiler can vectorise them.

Calls of the C library are scalar. Float32 gets rational and polynomial approximations here, fitted
for the largest relative error and good to 5e-7 absolute; float64 gets the C library.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.nn.activation import GELU, RELU, SILU, TANH

Array = Any

# no reassociation: the order of operations is what keeps the digits
compiled = njit(nogil=True, fastmath={"contract"}, error_model="numpy")

_f = np.float32
HALF, ONE, TWO = _f(0.5), _f(1), _f(2)
SQRT_HALF = _f(math.sqrt(0.5))
# erf(z) = z P(z^2) / Q(z^2) for |z| < 3.92, where 1 is near enough
ERF_END = _f(3.92)
P0, P1, P2 = _f(1.12837915), _f(0.190407125), _f(0.052748816)
P3, P4, P5 = _f(0.00376564695), _f(0.000284883701), _f(2.05008602e-06)
Q1, Q2, Q3 = _f(0.502076662), _f(0.114109389), _f(0.0149692761)
Q4, Q5 = _f(0.00116254336), _f(3.80917533e-05)
# e^x = 2^n e^r with |r| < ln(2)/2, e^r = 1 + r + r^2 R(r)
LOG2_E, LN2 = _f(1 / math.log(2)), _f(math.log(2))
LN2_REST = _f(math.log(2) - float(LN2))
EXP_END = _f(87)
R0, R1, R2 = _f(0.4999999345), _f(0.1666652069), _f(0.0416683874)
R3, R4 = _f(0.0083687098), _f(0.0013814613)
BIAS, MANTISSA = _f(127), _f(2**23)
# tanh(x) = x + x^3 T(x^2) for |x| < 0.625
TANH_SMALL = _f(0.625)
T0, T1, T2 = _f(-0.3333328194), _f(0.133314422), _f(-0.0537397151)
T3, T4 = _f(0.0206390874), _f(-0.0057049872)


@compiled
def activate(kind: int, exact: int, x: Array) -> None:
    """The activation with the number ``kind`` (see ``nn.activation``) on x, in place."""
    size = x.shape[0]
    if kind == GELU:
        if exact:
            for h in range(size):
                x[h] = 0.5 * x[h] * (1 + math.erf(x[h] * math.sqrt(0.5)))
        else:
            for h in range(size):
                x[h] = HALF * x[h] * (ONE + erf(x[h] * SQRT_HALF))
    elif kind == RELU:
        for h in range(size):
            x[h] = 0 if x[h] < 0 else x[h]
    elif kind == SILU:
        gate(exact, x, x)
    elif kind == TANH:
        if exact:
            for h in range(size):
                x[h] = math.tanh(x[h])
        else:
            for h in range(size):
                x[h] = tanh(x[h])


@compiled
def gate(exact: int, x: Array, by: Array) -> None:
    """``x sigmoid(by)``, in place."""
    if exact:
        for h in range(x.shape[0]):
            x[h] = x[h] / (1 + math.exp(-by[h]))
    else:
        for h in range(x.shape[0]):
            x[h] = x[h] / (ONE + exp(-by[h]))


@compiled
def erf(x: Array) -> Array:
    z = x * x
    top = ((((P5 * z + P4) * z + P3) * z + P2) * z + P1) * z + P0
    bottom = ((((Q5 * z + Q4) * z + Q3) * z + Q2) * z + Q1) * z + ONE
    y = x * top / bottom
    y = ONE if x > ERF_END else y
    return -ONE if x < -ERF_END else y


@compiled
def exp(x: Array) -> Array:
    x = EXP_END if x > EXP_END else x  # written so that NaN stays NaN
    x = -EXP_END if x < -EXP_END else x
    n = np.floor(x * LOG2_E + HALF)
    r = (x - n * LN2) - n * LN2_REST
    y = ONE + r + r * r * ((((R4 * r + R3) * r + R2) * r + R1) * r + R0)
    return y * np.int32((n + BIAS) * MANTISSA).view(np.float32)  # 2^n, from its bits


@compiled
def tanh(x: Array) -> Array:
    z = x * x
    small = x + x * z * ((((T4 * z + T3) * z + T2) * z + T1) * z + T0)
    large = ONE - TWO / (ONE + exp(TWO * x))
    return small if abs(x) < TANH_SMALL else large
