# SPDX-License-Identifier: Apache-2.0
"""Conversion of Kubernetes quantities to numbers and to their canonical form."""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from fractions import Fraction

from simyard.api.base import QUANTITY

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
    """Return a quantity, such as ``500m`` or ``4Gi``, as a number."""
    text = str(quantity)
    digits = text.rstrip("mkKMGTi")
    return Fraction(Decimal(digits)) * _FACTORS[text[len(digits) :]]


def parse_cores(quantity: str | int) -> int:
    """Return a quantity of cores as a whole number, rounded up, at least 1."""
    return max(1, math.ceil(parse_quantity(quantity)))


def parse_millis(quantity: str | int) -> int:
    """Return a quantity in thousandths, rounded up, at least 1."""
    return max(1, math.ceil(parse_quantity(quantity) * 1000))


def parse_mebibytes(quantity: str | int) -> int:
    """Return a quantity of bytes in MiB, rounded up."""
    return math.ceil(parse_quantity(quantity) / 2**20)


def parse_bytes(quantity: str | int) -> int:
    """Return a quantity of bytes as a whole number, rounded up.

    Raises:
        ValueError: The text is not a quantity.
    """
    if not re.fullmatch(QUANTITY, str(quantity)):
        raise ValueError(f"{str(quantity)[:50]!r} is no quantity: write a number of bytes, such as 500Gi")
    return math.ceil(parse_quantity(quantity))


def format_bytes(size: int) -> str:
    """Return a number of bytes as a text with a binary unit and three significant digits, such as 1.5Gi."""
    amount, units = float(size), ["", "Ki", "Mi", "Gi", "Ti"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g}{units[0]}" if units[0] else str(size)


def canonicalize_quantity(quantity: str) -> str:
    """Return a quantity as the API server returns it: with the largest unit that makes the number whole.

    ``0.5`` becomes ``500m``. Fractions of a thousandth are rounded up. A binary unit stays binary, unless the quantity
    is below ``1Ki`` or not whole (as in apimachinery's ``Quantity``).
    """
    value = Fraction(math.ceil(parse_quantity(quantity) * 1000), 1000)
    if not value:
        return "0"
    if quantity.endswith("i") and value >= 1024 and value.denominator == 1:
        factors = {unit: Fraction(2**power) for unit, power in _BINARY.items()}
    else:
        factors = {unit: Fraction(10) ** power for unit, power in _DECIMAL.items()}
    return next(f"{value / factor}{unit}" for unit, factor in factors.items() if (value / factor).denominator == 1)
