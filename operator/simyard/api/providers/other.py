"""A provider that is installed beside the platform."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Name, SecretReference, cel, rules

SettingValue = Annotated[str, Field(max_length=4096)]


class OtherProvider(ApiModel):
    """A provider installed beside the platform, see docs/sites/writing-a-site.md; it checks its own settings."""

    model_config = rules(
        cel(
            "!(self.name in ['emulated', 'pod', 'kubevirt', 'openNebula', 'other'])",
            "a provider of the platform has a member of its own",
            ".name",
        )
    )

    name: Annotated[Name, Field(description="Name of its entry point in the group `simyard.sites`.")]
    settings: Annotated[
        dict[str, SettingValue], Field(max_length=64, description="What the provider asks for; nothing secret.")
    ] = {}
    credentials_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret whose data the provider gets.")
    ] = None
