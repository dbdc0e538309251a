"""Kubernetes quantities as numbers."""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from fractions import Fraction

_FACTORS = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


@functools.lru_cache(maxsize=256)
def parse_quantity(quantity: str | int) -> Fraction:
    """The number that a quantity such as ``500m`` or ``4Gi`` stands for."""
    text = str(quantity)
    digits = text.rstrip("mkKMGTi")
    return Fraction(Decimal(digits)) * _FACTORS[text[len(digits) :]]


def cores_of(quantity: str | int) -> int:
    """Whole cores, at least one: machines have no parts of a core."""
    return max(1, math.ceil(parse_quantity(quantity)))


def millis_of(quantity: str | int) -> int:
    """Thousandths, rounded up, at least one."""
    return max(1, math.ceil(parse_quantity(quantity) * 1000))


def mebibytes_of(quantity: str | int) -> int:
    """Whole MiB, rounded up."""
    return math.ceil(parse_quantity(quantity) / 2**20)
