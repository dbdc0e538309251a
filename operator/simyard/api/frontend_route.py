# SPDX-License-Identifier: Apache-2.0
"""Routes from outside the cluster to OCCI frontends: the value of the option ``--frontend-route``.

The fields have the names of the chart's values (``frontends.ingress`` and ``frontends.gateway``).
"""

from __future__ import annotations

from pydantic import ValidationError

from simyard.api.base import ApiModel
from simyard.api.frontend_pod import describe_problems


class IngressRoute(ApiModel, extra="forbid"):
    """Settings of the Ingress that each service's frontends get.

    Attributes:
        class_name: IngressClass; if empty, the cluster's default class.
        annotations: Annotations for the Ingress controller. For example, they tell it that the frontends use TLS.
        tls_secret_name: Secret with the certificate of the Ingress; if empty, the Secret of the frontends' certificate.
    """

    class_name: str = ""
    annotations: dict[str, str] = {}
    tls_secret_name: str = ""


class GatewayRoute(ApiModel, extra="forbid"):
    """Settings of the HTTPRoute and the BackendTLSPolicy that each service's frontends get.

    Attributes:
        name: Name of the Gateway.
        namespace: Namespace of the Gateway; if empty, the platform's namespace.
        section_name: Listener of the Gateway; if empty, all listeners.
        ca_config_map: ConfigMap with the frontends' CA (``ca.crt``); if empty, the system's CAs.
    """

    name: str
    namespace: str = ""
    section_name: str = ""
    ca_config_map: str = ""


class FrontendRoute(ApiModel, extra="forbid"):
    """Routes from outside the cluster to the frontends of an installation.

    Attributes:
        ingress: Settings of the Ingress; None for no Ingress.
        gateway: Settings of the HTTPRoute; None for no HTTPRoute.
    """

    ingress: IngressRoute | None = None
    gateway: GatewayRoute | None = None

    @classmethod
    def from_json(cls, text: str) -> FrontendRoute:
        """Parse a JSON document, and return the routes.

        Raises:
            ValueError: The document is not valid; the message names each wrong field.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(describe_problems(error)) from None
