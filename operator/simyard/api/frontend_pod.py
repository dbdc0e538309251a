"""What an installation says about the pods of its OCCI frontends: the value of ``--frontend-pod``.

What is not given is as Kubernetes, or ``simyard frontend``, has it; security contexts and spread have defaults. The
chart's values (``frontends.*``) are the defaults of an installation. The fields bear the names of these values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from simyard.api.base import QUANTITY, ApiModel, Json
from simyard.api.names import FRONTEND
from simyard.api.providers.scheduling import NodeSelector, Toleration
from simyard.api.quantities import canonical


def _text(value: Any) -> Any:
    """A number as text: quantities may be written without quotes."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Amount = Annotated[str, BeforeValidator(_text), Field(max_length=32, pattern=QUANTITY), AfterValidator(canonical)]
"""A quantity as the API server writes it, so that what it has can be compared with what is wanted."""
Amounts = dict[Literal["cpu", "memory", "ephemeral-storage"], Amount]


RESTRICTED_POD: Json = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The user as in the image."""
RESTRICTED_CONTAINER: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class FrontendResources(ApiModel, extra="forbid"):
    """The resources of a frontend's container."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class FrontendToleration(Toleration, extra="forbid"):
    """A taint that a frontend's pod tolerates."""


class FrontendPod(ApiModel, extra="forbid"):
    """Attributes:
    resources: of the container.
    node_selector: labels of the nodes for the pods, beside ``kubernetes.io/os=linux``.
    tolerations: taints that the pods tolerate.
    affinity: in place of our own, which keeps the pods of a service in different zones.
    spread: how strictly the pods of a service are kept on different nodes; ``required`` counts tainted nodes too.
    topology_spread_constraints: in place of our own, which ``spread`` describes.
    labels: of all objects of a frontend, beside our own.
    pod_labels: of the pods, beside our own.
    pod_annotations: annotations of the pods.
    role: the Role and the ClusterRole of the pods' ServiceAccounts.
    account_annotations: annotations of these ServiceAccounts.
    image_pull_secrets: names of the Secrets with which their image is pulled.
    extra_env: environment variables of the container.
    extra_volumes: volumes of the pods.
    extra_volume_mounts: where the container mounts them.
    pod_security_context: of the pods, in place of our own.
    container_security_context: of the container, in place of our own.
    priority_class_name: their PriorityClass.
    image_pull_policy: when their image is pulled.
    log_level: how much they log.
    """

    resources: FrontendResources = FrontendResources()
    node_selector: NodeSelector = {}
    tolerations: list[FrontendToleration] = []
    affinity: Json = {}
    spread: Literal["preferred", "available", "required"] = "available"
    topology_spread_constraints: list[Json] = []
    labels: dict[str, str] = {}
    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}
    role: str = FRONTEND
    account_annotations: dict[str, str] = {}
    image_pull_secrets: list[str] = []
    extra_env: list[Json] = []
    extra_volumes: list[Json] = []
    extra_volume_mounts: list[Json] = []
    pod_security_context: Json = RESTRICTED_POD
    container_security_context: Json = RESTRICTED_CONTAINER
    priority_class_name: str = ""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None

    @classmethod
    def from_json(cls, text: str) -> FrontendPod:
        """The pod that a JSON document describes.

        Raises:
            ValueError: it is none; the message names each field that is wrong.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(problems(error)) from None


def problems(error: ValidationError) -> str:
    """Return what is wrong, each with the path of its field."""
    return "; ".join(_problem(item["loc"], item["msg"]) for item in error.errors())


def _problem(place: tuple[int | str, ...], message: str) -> str:
    parts = (part for part in place if part != "[key]")  # pydantic's mark of a key that is wrong itself
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    return f"{path}: {message}" if path else message
