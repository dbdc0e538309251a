# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of an OpenNebula cloud: the member ``openNebula`` of ``spec.provider``, and its Secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yarl import URL

from simyard_sites.base import ErrorScope, InvalidSpecError, SiteConfig, UnauthenticatedError

PATH = "spec.provider.openNebula"
MIN_TOKEN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Network:
    """A virtual network by name; ``owner`` is "" if the account owns it or the name is unique."""

    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a site; ``simyard.api.providers.open_nebula`` describes each member and has the defaults.

    An optional text is "" if it is absent. ``secret`` is a password, or a login token if ``is_token``.
    ``token_seconds`` is 0 if no tokens are used.
    """

    endpoint: str
    template: str
    username: str
    secret: str = field(repr=False)
    is_token: bool
    ca_certificate: str
    template_owner: str
    image_owner: str
    networks: tuple[Network, ...]
    host_requirements: str
    datastore_requirements: str
    proxy: str
    proxy_username: str
    proxy_password: str = field(repr=False)
    connections: int
    poll_seconds: float
    quiet_poll_seconds: float
    token_seconds: int
    user_group: str

    @classmethod
    def from_config(cls, config: SiteConfig) -> Settings:
        """Read the member and the Secret.

        Raises:
            InvalidSpecError: A field is wrong; the message names it.
            UnauthenticatedError: The Secret lacks a key; the message names it.
        """
        provider, secret = config.provider, {key: value.strip() for key, value in config.credentials.items()}
        endpoint = _text(provider, "endpoint")
        if URL(endpoint).scheme not in ("http", "https") or not URL(endpoint).host:
            raise _invalid("endpoint", f"{endpoint!r} is not an http or https URL")
        token_seconds = _number(provider, "loginTokenSeconds", least=0)
        if 0 < token_seconds < MIN_TOKEN_SECONDS:
            raise _invalid("loginTokenSeconds", f"{token_seconds} is less than {MIN_TOKEN_SECONDS}")
        username, given = secret.get("username", ""), secret.get("password") or secret.get("token") or ""
        if not username or ":" in username or not given:
            raise UnauthenticatedError(
                f"{PATH}.credentialsSecretRef: the Secret must have the key `username` (without a colon), and either "
                "`password` or `token`"
            )
        is_token = not secret.get("password")
        return cls(
            endpoint=endpoint,
            template=_text(provider, "template"),
            username=username,
            secret=given,
            is_token=is_token,
            ca_certificate=secret.get("ca.crt", ""),
            template_owner=_text(provider, "templateOwner", ""),
            image_owner=_text(provider, "imageOwner", ""),
            networks=tuple(_networks(provider)),
            host_requirements=_text(provider, "hostRequirements", ""),
            datastore_requirements=_text(provider, "datastoreRequirements", ""),
            proxy=_text(provider, "proxy", ""),
            proxy_username=secret.get("proxyUsername", ""),
            proxy_password=secret.get("proxyPassword", ""),
            connections=_number(provider, "connections"),
            poll_seconds=_number(provider, "pollMilliseconds") / 1000,
            quiet_poll_seconds=float(_number(provider, "quietPollSeconds")),
            token_seconds=0 if is_token else token_seconds,
            user_group=_text(provider, "userGroup", ""),
        )


def _invalid(name: str, problem: str) -> InvalidSpecError:
    return InvalidSpecError(f"{PATH}.{name}: {problem}", scope=ErrorScope.SITE)


def _text(provider: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = provider.get(name, default)
    if not isinstance(value, str) or (default is None and not value):
        raise _invalid(
            name, "is required and must be a string" if value in (None, "") else f"{value!r} is not a string"
        )
    return value


def _number(provider: Mapping[str, Any], name: str, *, least: int = 1) -> int:
    value = provider.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _invalid(name, f"{value!r} is not a whole number of at least {least}")
    return value


def _networks(provider: Mapping[str, Any]) -> list[Network]:
    value = provider.get("networks", [])
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise _invalid("networks", "must be a list of objects with `name`")
    return [Network(_text(each, "name"), _text(each, "owner", "")) for each in value]
