# SPDX-License-Identifier: Apache-2.0
"""Creates the provider of a CloudSite. Each kind of provider is an entry point of an installed package."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from simyard.api.cloud_site import CloudSite
from simyard.api.names import Reason
from simyard.fleet.sites.guarded import make_defect_error
from simyard_sites.base import Site, SiteConfig, SiteError

ENTRY_POINTS = "simyard.sites"
MakeProvider = Callable[[CloudSite, SiteConfig], Site]


class SetupError(Exception):
    """Error: a provider cannot be created. ``reason`` is the reason of the CloudSite's condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def make_provider(site: CloudSite, config: SiteConfig) -> Site:
    """Create the provider that a CloudSite names.

    Raises:
        SetupError: the provider is not installed, or its settings cannot be used.
    """
    kind = site.spec.provider.entry_point
    found = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.name == kind]
    if not found:
        raise SetupError(Reason.PROVIDER_NOT_INSTALLED, f"no installed package contains the provider {kind}")
    try:
        provider: Site = found[0].load()(config)
    except ImportError as error:
        raise SetupError(Reason.PROVIDER_NOT_INSTALLED, f"the provider {kind} cannot be loaded: {error}") from error
    except SiteError as error:
        raise SetupError(error.reason, str(error)) from error
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        told = make_defect_error(config.name, "the factory", error)
        raise SetupError(told.reason, str(told)) from None
    return provider
