# SPDX-License-Identifier: Apache-2.0
"""Settings of sites whose workers are virtual machines of an OpenNebula cloud."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, SecretReference, add_cel_rules, make_cel_rule
from simyard.api.providers.identity import IDENTITY

OneName = Annotated[str, Field(min_length=1, max_length=128)]
"""Name of an OpenNebula object, or its id."""
Requirements = Annotated[str, Field(min_length=1, max_length=4096)]


class OneNetwork(ApiModel):
    """Virtual network of the cloud."""

    name: Annotated[OneName, Field(description="Name or id of the network.")]
    owner: Annotated[
        OneName | None,
        Field(description="Owner of the network, if the account does not own it and the name is not unique."),
    ] = None


class OpenNebulaProvider(ApiModel):
    """Site whose workers are virtual machines of an OpenNebula cloud (5.12 or later), over its XML-RPC API."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!has(self.loginTokenSeconds) || self.loginTokenSeconds == 0 || self.loginTokenSeconds >= 300",
            "loginTokenSeconds must be 0 or at least 300",
            ".loginTokenSeconds",
        ),
        make_cel_rule("self.endpoint == oldSelf.endpoint", IDENTITY, ".endpoint"),
    )

    endpoint: Annotated[
        str, Field(max_length=2048, pattern=r"^https?://", description="URL of the XML-RPC API, ending in /RPC2.")
    ]
    credentials_secret_ref: Annotated[
        SecretReference,
        Field(
            description="Secret with the keys `username`, and `password` or `token` (a login token). Optional keys are"
            " `ca.crt` (authority of the endpoint's certificate), `proxyUsername` and `proxyPassword`."
        ),
    ]
    template: Annotated[OneName, Field(description="Name or id of the VM template to instantiate.")]
    template_owner: Annotated[
        OneName | None, Field(description="Owner of the template, if the name is not unique.")
    ] = None
    image_owner: Annotated[
        OneName | None,
        Field(description="Owner of the images that services name in `images.openNebula`; by default the account."),
    ] = None
    networks: Annotated[
        list[OneNetwork],
        Field(
            max_length=16,
            json_schema_extra=ATOMIC,
            description="Networks of each machine; they replace the networks of the template.",
        ),
    ] = []
    host_requirements: Annotated[
        Requirements | None,
        Field(description="Condition for hosts (SCHED_REQUIREMENTS), such as `CLUSTER_ID = 101`."),
    ] = None
    datastore_requirements: Annotated[
        Requirements | None, Field(description="Condition for system datastores (SCHED_DS_REQUIREMENTS).")
    ] = None
    user_group: Annotated[
        OneName | None,
        Field(
            description="Group of the cloud whose members may use the machines. OpenNebula must then encrypt the"
            " machines' secrets, see docs/sites/opennebula.md."
        ),
    ] = None
    login_token_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=31_536_000,
            description="Lifetime of login tokens. The operator uses tokens and renews them, so it seldom sends the"
            " password. 0: every request sends the password.",
        ),
    ] = 0
    proxy: Annotated[str | None, Field(max_length=2048, pattern=r"^https?://", description="URL of an HTTP proxy.")] = (
        None
    )
    connections: Annotated[
        int,
        Field(
            ge=2,
            le=100,
            description="Maximum number of connections. oned serves 15 (MAX_CONN) of all clients together.",
        ),
    ] = 6
    poll_milliseconds: Annotated[
        int, Field(ge=100, le=60_000, description="Interval between polls of machines that start or stop.")
    ] = 500
    quiet_poll_seconds: Annotated[int, Field(ge=1, le=3600, description="Interval between polls of all machines.")] = 30
