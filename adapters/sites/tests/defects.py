# SPDX-License-Identifier: Apache-2.0
"""The toy cloud, and a list of what is wrong with sites of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOY = Path(__file__).resolve().parents[3] / "examples" / "toy-site"
sys.path.append(str(TOY))

import toy_cloud as toy_cloud  # noqa: E402
import toy_site as toy_site  # noqa: E402
import toy_world as toy_world  # noqa: E402

ToySite = toy_site.ToySite
LEFT: list[Any] = []
CLEARED = "what_was_kept_beside_machines_goes_when_the_site_is_cleared_and_that_of_neighbours_stays"
FOUND_BY: list[tuple[type[Any], str]] = []


def found_by(*cases: str) -> Callable[[type[Any]], type[Any]]:
    """Note which cases of the suite find what is wrong with a site, or with the cloud that it takes for another."""

    def note(defect: type[Any]) -> type[Any]:
        FOUND_BY.extend((defect, case) for case in cases)
        return defect

    return note
