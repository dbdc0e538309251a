"""Workers as virtual machines of an OpenNebula cloud."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, SecretReference


class OpenNebulaProvider(ApiModel):
    """Workers are virtual machines of an OpenNebula cloud."""

    endpoint: Annotated[
        str, Field(max_length=2048, pattern=r"^https?://", description="URL of the XML-RPC API, ending in /RPC2.")
    ]
    credentials_secret_ref: Annotated[
        SecretReference, Field(description="Secret with the keys `username` and `password` (or a login token).")
    ]
    template: Annotated[str, Field(min_length=1, max_length=128, description="Name of the template to instantiate.")]
