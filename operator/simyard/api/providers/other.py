# SPDX-License-Identifier: Apache-2.0
"""Settings of sites whose provider is installed in addition to the platform."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Name, SecretReference, add_cel_rules, make_cel_rule

SettingValue = Annotated[str, Field(max_length=4096)]


class OtherProvider(ApiModel):
    """Provider that is installed in addition to the platform (docs/sites/writing-a-site.md) and checks its settings."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!(self.name in ['emulated', 'pod', 'kubevirt', 'openNebula', 'other'])",
            "must not be a provider of the platform: use spec.provider's member of that name",
            ".name",
        )
    )

    name: Annotated[Name, Field(description="Name of the provider's entry point in the group `simyard.sites`.")]
    settings: Annotated[
        dict[str, SettingValue],
        Field(max_length=64, description="Settings that the provider defines; they must not hold secrets."),
    ] = {}
    credentials_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret whose data the provider receives.")
    ] = None
