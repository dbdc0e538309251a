"""How clients outside of the cluster reach OCCI frontends: the value of ``--frontend-route``.

The fields bear the names of the chart's values (``frontends.ingress`` and ``frontends.gateway``).
"""

from __future__ import annotations

from pydantic import ValidationError

from simyard.api.base import ApiModel
from simyard.api.frontend_pod import problems


class IngressRoute(ApiModel, extra="forbid"):
    """An Ingress for each service's frontends.

    Attributes:
        class_name: the IngressClass; the cluster's default when it is "".
        annotations: what the controller needs to know, for example that the frontends speak TLS.
        tls_secret_name: the certificate that clients see; the frontends' own when it is "".
    """

    class_name: str = ""
    annotations: dict[str, str] = {}
    tls_secret_name: str = ""


class GatewayRoute(ApiModel, extra="forbid"):
    """An HTTPRoute and a BackendTLSPolicy for each service's frontends.

    Attributes:
        name: the Gateway.
        namespace: its namespace; the platform's when it is "".
        section_name: its listener; all listeners when it is "".
        ca_config_map: ConfigMap with the frontends' CA (``ca.crt``); the system's CAs when it is "".
    """

    name: str
    namespace: str = ""
    section_name: str = ""
    ca_config_map: str = ""


class FrontendRoute(ApiModel, extra="forbid"):
    """Attributes:
    ingress: None: no Ingress.
    gateway: None: no HTTPRoute.
    """

    ingress: IngressRoute | None = None
    gateway: GatewayRoute | None = None

    @classmethod
    def from_json(cls, text: str) -> FrontendRoute:
        """Return the route that a JSON document describes.

        Raises:
            ValueError: it describes none; the message names each wrong field.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(problems(error)) from None
