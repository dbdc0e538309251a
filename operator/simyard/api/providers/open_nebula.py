"""Workers as virtual machines of an OpenNebula cloud."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, SecretReference, cel, rules
from simyard.api.providers.identity import IDENTITY

OneName = Annotated[str, Field(min_length=1, max_length=128)]
"""The name of an OpenNebula object, or its id."""
Requirements = Annotated[str, Field(min_length=1, max_length=4096)]


class OneNetwork(ApiModel):
    """A virtual network of the cloud."""

    name: Annotated[OneName, Field(description="Its name or id.")]
    owner: Annotated[
        OneName | None, Field(description="Whose it is, where the account does not own it and the name is not unique.")
    ] = None


class OpenNebulaProvider(ApiModel):
    """Workers are virtual machines of an OpenNebula cloud (5.12 or later), over its XML-RPC API."""

    model_config = rules(
        cel(
            "!has(self.loginTokenSeconds) || self.loginTokenSeconds == 0 || self.loginTokenSeconds >= 300",
            "loginTokenSeconds must be 0 or at least 300",
            ".loginTokenSeconds",
        ),
        cel("self.endpoint == oldSelf.endpoint", IDENTITY, ".endpoint"),
    )

    endpoint: Annotated[
        str, Field(max_length=2048, pattern=r"^https?://", description="URL of the XML-RPC API, ending in /RPC2.")
    ]
    credentials_secret_ref: Annotated[
        SecretReference,
        Field(
            description="Secret with the keys `username`, and `password` or `token` (a login token); where they are "
            "needed, `ca.crt` (authority of the endpoint's certificate), `proxyUsername` and `proxyPassword`."
        ),
    ]
    template: Annotated[OneName, Field(description="Name or id of the VM template to instantiate.")]
    template_owner: Annotated[
        OneName | None, Field(description="Whose template it is, where the name is not unique.")
    ] = None
    image_owner: Annotated[
        OneName | None,
        Field(description="Whose the images are that services name in `images.openNebula`; the account's by default."),
    ] = None
    networks: Annotated[
        list[OneNetwork],
        Field(
            max_length=16,
            json_schema_extra=ATOMIC,
            description="The networks of each machine, instead of those of the template.",
        ),
    ] = []
    host_requirements: Annotated[
        Requirements | None,
        Field(description="Which hosts will do (SCHED_REQUIREMENTS), such as `CLUSTER_ID = 101`."),
    ] = None
    datastore_requirements: Annotated[
        Requirements | None, Field(description="Which system datastores will do (SCHED_DS_REQUIREMENTS).")
    ] = None
    user_group: Annotated[
        OneName | None,
        Field(
            description="Group of the cloud whose members may use the machines. OpenNebula must encrypt their secrets, "
            "as docs/sites/opennebula.md says."
        ),
    ] = None
    login_token_seconds: Annotated[
        int | None,
        Field(
            ge=0,
            le=31_536_000,
            description="Log in with tokens of this life, renewed in time, so that the password is seldom sent. "
            "0 (the default): use the password.",
        ),
    ] = None
    proxy: Annotated[
        str | None, Field(max_length=2048, pattern=r"^https?://", description="URL of an HTTP proxy on the way.")
    ] = None
    connections: Annotated[
        int | None,
        Field(ge=2, le=100, description="At once, at most; 6 by default. oned serves 15 (MAX_CONN), of all clients."),
    ] = None
    poll_milliseconds: Annotated[
        int | None,
        Field(ge=100, le=60_000, description="Between two looks at machines that start or end; 500 by default."),
    ] = None
    quiet_poll_seconds: Annotated[
        int | None, Field(ge=1, le=3600, description="Between two looks at all machines; 30 by default.")
    ] = None
