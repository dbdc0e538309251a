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
_DECIMAL = {"E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "": 0, "m": -3}
_BINARY = {"Ei": 60, "Pi": 50, "Ti": 40, "Gi": 30, "Mi": 20, "Ki": 10, "": 0}


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


def canonical(quantity: str) -> str:
    """As the API server writes a pod's resources: with the largest unit that leaves a whole number.

    ``0.5`` is ``500m``; what is finer is rounded up. Binary units stay binary, but below ``1Ki`` and where parts of a
    whole are left (apimachinery's ``Quantity``).
    """
    value = Fraction(math.ceil(parse_quantity(quantity) * 1000), 1000)
    if not value:
        return "0"
    if quantity.endswith("i") and value >= 1024 and value.denominator == 1:
        factors = {unit: Fraction(2**power) for unit, power in _BINARY.items()}
    else:
        factors = {unit: Fraction(10) ** power for unit, power in _DECIMAL.items()}
    return next(f"{value / factor}{unit}" for unit, factor in factors.items() if (value / factor).denominator == 1)
