# SPDX-License-Identifier: Apache-2.0
"""Build the settings of providers, for tests and benchmarks that create a site without a CloudSite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simyard.api.base import ApiModel
from simyard.api.providers.emulated import EmulatedProvider
from simyard.api.providers.kubevirt import KubevirtProvider
from simyard.api.providers.open_nebula import OpenNebulaProvider
from simyard.api.providers.pod import PodProvider
from simyard_sites.emulated.settings import Settings as EmulatedSettings


def complete_emulated(**given: Any) -> dict[str, Any]:
    """Return the member ``emulated`` of ``spec.provider``, with the defaults of the kind."""
    return _complete(EmulatedProvider, given)


def make_emulated_settings(**numbers: Any) -> EmulatedSettings:
    """Return the settings of an emulated cloud that takes no time and has no limits, except for these numbers."""
    return replace(EmulatedSettings.from_provider(complete_emulated()), **numbers)


def complete_kubevirt(**given: Any) -> dict[str, Any]:
    """Return the member ``kubevirt`` of ``spec.provider``, with the defaults of the kind."""
    return _complete(KubevirtProvider, given)


def complete_open_nebula(**given: Any) -> dict[str, Any]:
    """Return the member ``openNebula`` of ``spec.provider``, with the defaults of the kind.

    Endpoint, template and the name of the Secret are set if they are not given.
    """
    required = {"endpoint": "http://one/RPC2", "template": "t", "credentialsSecretRef": {"name": "one"}}
    return _complete(OpenNebulaProvider, required | given)


def complete_pod(**given: Any) -> dict[str, Any]:
    """Return the member ``pod`` of ``spec.provider``, with the defaults of the kind."""
    return _complete(PodProvider, given)


def _complete(model: type[ApiModel], given: Mapping[str, Any]) -> dict[str, Any]:
    return model.model_validate(given).to_json()
