# SPDX-License-Identifier: Apache-2.0
"""Sequences of points in the unit cube. Each coordinate is a function of a seed, an axis and an index.

A study has up to ten million tasks, and nothing is stored for a single point. Any process must therefore compute the
point of any index directly, and get the same value on every machine. This excludes generators with a state. All
arithmetic here is on integers; each coordinate becomes a float in one exact step at its end.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = 4

SOBOL_BITS = 32
"""Number of bits of a coordinate of the Sobol sequence; so many bits are enough for 2**32 points."""

_SOBOL_AXES: tuple[tuple[int, tuple[int, ...]], ...] = (
    (1, ()),
    (3, (1,)),
    (7, (1, 3)),
    (11, (1, 3, 1)),
    (13, (1, 1, 1)),
    (19, (1, 1, 3, 3)),
    (25, (1, 3, 5, 13)),
    (37, (1, 1, 5, 5, 17)),
    (41, (1, 1, 5, 5, 5)),
    (47, (1, 1, 7, 11, 19)),
    (55, (1, 1, 5, 1, 1)),
    (59, (1, 1, 1, 3, 11)),
    (61, (1, 3, 5, 5, 31)),
    (67, (1, 3, 3, 9, 7, 49)),
    (91, (1, 1, 1, 15, 21, 21)),
    (97, (1, 3, 1, 13, 27, 49)),
    (103, (1, 1, 1, 15, 7, 5)),
    (109, (1, 3, 1, 15, 13, 25)),
    (115, (1, 1, 5, 5, 19, 61)),
    (131, (1, 3, 7, 11, 23, 15, 103)),
    (137, (1, 3, 7, 13, 13, 15, 69)),
    (143, (1, 1, 3, 13, 7, 35, 63)),
    (145, (1, 3, 5, 9, 1, 25, 53)),
    (157, (1, 3, 1, 13, 9, 35, 107)),
    (167, (1, 3, 1, 5, 27, 61, 31)),
    (171, (1, 1, 5, 11, 19, 41, 61)),
    (185, (1, 3, 5, 3, 3, 13, 69)),
    (191, (1, 1, 7, 13, 1, 19, 1)),
    (193, (1, 3, 7, 5, 13, 19, 59)),
    (203, (1, 1, 3, 9, 25, 29, 41)),
    (211, (1, 3, 5, 13, 23, 1, 55)),
    (213, (1, 3, 7, 3, 13, 59, 17)),
)
"""Primitive polynomial and initial direction numbers of each axis.

Source: S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci.
Comput. 30 (2008), 2635-2654, table new-joe-kuo-6.21201. The bits of a polynomial are its coefficients."""

PRIMES = (
    2,
    3,
    5,
    7,
    11,
    13,
    17,
    19,
    23,
    29,
    31,
    37,
    41,
    43,
    47,
    53,
    59,
    61,
    67,
    71,
    73,
    79,
    83,
    89,
    97,
    101,
    103,
    107,
    109,
    113,
    127,
    131,
)

MAX_AXES = len(_SOBOL_AXES)
"""Maximum number of axes of a sequence."""


@lru_cache(maxsize=4096)
def derive_key(seed: int, axis: int, purpose: str) -> int:
    """Return a key of 64 bits for one use of one axis; keys of other uses, axes and seeds are independent of it."""
    text = f"{seed}/{axis}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def mix(value: int) -> int:
    """Return 64 bits that look random for each value: the output function of SplitMix64.

    Source: G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def _draw_bits(key: int, index: int) -> int:
    return mix((key + (index + 1) * _GOLDEN) & _MASK64)


def draw_uniform(seed: int, axis: int, index: int) -> float:
    """Return an independent uniform number in [0, 1) with 53 bits."""
    return (_draw_bits(derive_key(seed, axis, "uniform"), index) >> 11) * 2.0**-53


def permute(key: int, index: int, count: int) -> int:
    """Return the place of ``index`` in a permutation of ``range(count)`` that ``key`` selects.

    The permutation is a Feistel network over the smallest square of a power of two that holds ``count``. A result
    outside of the range is permuted again until it is inside ("cycle walking": J. Black and P. Rogaway, "Ciphers with
    arbitrary finite domains", CT-RSA 2002). This is a bijection, and it needs no table of ``count`` entries.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (_draw_bits(key + number, right) & mask)
        index = (left << half) | right
        if index < count:
            return index


def draw_stratified(seed: int, axis: int, index: int, count: int) -> float:
    """Return a coordinate of a Latin hypercube sample of ``count`` points.

    The ``count`` points hit each of ``count`` equal parts of [0, 1) exactly once. Source: M. D. McKay, R. J. Beckman
    and W. J. Conover, "A comparison of three methods for selecting values of input variables", Technometrics 21 (1979).
    """
    part = permute(derive_key(seed, axis, "stratum"), index, count)
    return min((part + draw_uniform(seed, axis, index)) / count, 1.0 - 2.0**-53)


def invert_radix(base: int, index: int) -> tuple[int, int]:
    """Return numerator and denominator of the radical inverse: the digits of ``index`` mirrored at the point."""
    numerator, denominator = 0, 1
    while index:
        index, digit = divmod(index, base)
        numerator, denominator = numerator * base + digit, denominator * base
    return numerator, denominator


def draw_halton(seed: int, axis: int, index: int) -> float:
    """Return a coordinate of the Halton sequence, shifted by a random distance modulo 1.

    Sources: J. H. Halton, Numer. Math. 2 (1960), 84-90; the shift: R. Cranley and T. N. L. Patterson, SIAM J. Numer.
    Anal. 13 (1976), 904-914.
    """
    numerator, denominator = invert_radix(PRIMES[axis], index)
    shift = derive_key(seed, axis, "halton") >> 11
    return (((numerator << 53) // denominator + shift) & ((1 << 53) - 1)) * 2.0**-53


@lru_cache(maxsize=MAX_AXES)
def _direction_numbers(axis: int) -> tuple[int, ...]:
    polynomial, initial = _SOBOL_AXES[axis]
    degree = polynomial.bit_length() - 1
    numbers = list(initial) or [1]
    while len(numbers) < SOBOL_BITS:
        if degree == 0:  # the first axis: the van der Corput sequence
            numbers.append(1)
            continue
        number = numbers[-degree] ^ (numbers[-degree] << degree)
        for place in range(1, degree):
            if polynomial >> (degree - place) & 1:
                number ^= numbers[-place] << place
        numbers.append(number)
    return tuple(number << (SOBOL_BITS - 1 - place) for place, number in enumerate(numbers))


def compute_sobol(axis: int, index: int) -> int:
    """Return a coordinate of the Sobol sequence in units of 2**-32, in the order of Gray codes.

    Source: I. A. Antonov and V. M. Saleev, USSR Comput. Math. Math. Phys. 19 (1979), 252-256.
    """
    gray, numbers, result = index ^ (index >> 1), _direction_numbers(axis), 0
    while gray:
        low = gray & -gray
        result ^= numbers[low.bit_length() - 1]
        gray ^= low
    return result


def draw_sobol(seed: int, axis: int, index: int) -> float:
    """Return a coordinate of the Sobol sequence after a random digital shift.

    The shift is an exclusive-or with a number of the seed and the axis. It keeps the equal distribution over
    elementary intervals, and moves the first point away from the corner of the cube.
    """
    shift = derive_key(seed, axis, "sobol") >> (64 - SOBOL_BITS)
    return (compute_sobol(axis, index) ^ shift) * 2.0**-SOBOL_BITS
