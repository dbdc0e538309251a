# SPDX-License-Identifier: Apache-2.0
"""Weight of free-form values; the admission policies of :mod:`simyard.manifests.sizes` compute the same weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 6
"""Maximum nesting of lists and objects in a free-form value."""
MAX_PARAMETERS_WEIGHT = 1_114_112
"""Maximum weight of all parameters of an action: a text of 1 MiB, and 64 KiB for the other parameters."""
MAX_MEMBERS = 14_563
"""Maximum number of members of one list or object.

For a larger value, the policy exceeds the API server's cost limit before it has computed the weight."""
MAX_ATTRIBUTES_WEIGHT = 65_536
"""Maximum weight of all attributes of a pool, a Worker or a link."""
MAX_DEFAULT_WEIGHT = 65_536
"""Maximum weight of all defaults of a service's interface or of a mixin."""
SCALAR = 16
"""Weight of a number, a boolean or null."""
REMEDY = "upload large inputs with `kubectl simyard cp` and pass their addresses"
TOO_DEEP = 1_000_000_000
"""Weight of a value that nests deeper than :data:`MAX_DEPTH`."""


def weigh_value(value: Any, levels: int = MAX_DEPTH) -> int:
    """Return the weight of a JSON value: the characters of texts and names, and :data:`SCALAR` for each other value."""
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, list | Mapping):
        return SCALAR
    if levels == 0:
        return TOO_DEEP
    if len(value) > MAX_MEMBERS:
        return MAX_PARAMETERS_WEIGHT + len(value)
    if isinstance(value, list):
        return 2 + sum(2 + weigh_value(item, levels - 1) for item in value)
    return 2 + sum(len(name) + 4 + weigh_value(item, levels - 1) for name, item in value.items())


def find_excess(parameters: Mapping[str, Any]) -> str:
    """Return an error text if the parameters of an action are too large, else an empty text."""
    weight = weigh_value(parameters)
    if weight >= TOO_DEEP:
        return f"nests deeper than {MAX_DEPTH} levels: {REMEDY}"
    if weight <= MAX_PARAMETERS_WEIGHT:
        return ""
    return (
        f"weighs {weight}, at most {MAX_PARAMETERS_WEIGHT} is accepted (characters of texts and names, {SCALAR} for"
        f" each number): {REMEDY}"
    )
