# SPDX-License-Identifier: Apache-2.0
"""Defines the world of the conformance suite for the oned that environment variables name (docs/sites/opennebula.md).

``pytest --pyargs simyard_sites.conformance --site simyard_sites.opennebula.conformance:make_daemon_world``
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from simyard_sites.base import MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World
from simyard_sites.opennebula.site import OpenNebulaSite


class DaemonWorld(World):
    """The world of a real oned. It has no switches for faults, so the suite skips the tests that need faults."""

    kept_connections = 2
    deadline_seconds = 120.0
    burst = 100

    def __init__(self) -> None:
        self._unique = uuid.uuid4().hex[:8]

    def site(self, installation: str = "default", name: str = "one", **provider: Any) -> Site:
        """Create a site for this installation and CloudSite."""
        username, _, password = os.environ["SIMYARD_ONE_AUTH"].partition(":")
        config = {
            "endpoint": os.environ["SIMYARD_ONE_ENDPOINT"],
            "template": os.environ.get("SIMYARD_ONE_TEMPLATE", "worker"),
            "connections": 6,
            "pollMilliseconds": 500,
            "quietPollSeconds": 30,
            "loginTokenSeconds": 0,
            **provider,
        }
        credentials = {"username": username, "password": password}
        return OpenNebulaSite(SiteConfig(name, config, credentials, f"{installation}-{self._unique}"))

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """Return a request that can never succeed."""
        return replace(request, image="no-such-image")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """Return factories of sites with one wrong setting each, by the field's name."""
        return {"spec.provider.openNebula.template": lambda: self.site(template="no-such-template")}


@asynccontextmanager
async def make_daemon_world() -> AsyncIterator[World]:
    """Return the cloud of ``SIMYARD_ONE_ENDPOINT``, ``SIMYARD_ONE_AUTH`` (user:password), ``SIMYARD_ONE_TEMPLATE``."""
    yield DaemonWorld()
