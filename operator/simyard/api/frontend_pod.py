# SPDX-License-Identifier: Apache-2.0
"""Settings of the pods of OCCI frontends: the value of the option ``--frontend-pod``.

The security contexts and ``spread`` have defaults here. Other fields that are not set have the defaults of Kubernetes
or of ``simyard frontend``. The fields have the names of the chart's values (``frontends.*``), and the chart passes
these values in the option.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from simyard.api.base import QUANTITY, ApiModel, Json
from simyard.api.names import FRONTEND
from simyard.api.providers.scheduling import NodeSelector, Toleration
from simyard.api.quantities import canonicalize_quantity


def _format_number(value: Any) -> Any:
    """Return the text of a number, because a user may write a quantity without quotes."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Amount = Annotated[
    str, BeforeValidator(_format_number), Field(max_length=32, pattern=QUANTITY), AfterValidator(canonicalize_quantity)
]
"""Quantity in the API server's form, so that the operator can compare live and desired objects."""
Amounts = dict[Literal["cpu", "memory", "ephemeral-storage"], Amount]


RESTRICTED_POD: Json = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Default security context of the pods; they run as the user of the image."""
RESTRICTED_CONTAINER: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class FrontendResources(ApiModel, extra="forbid"):
    """Resources of a frontend's container."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class FrontendToleration(Toleration, extra="forbid"):
    """Taint that a frontend's pod tolerates."""


class FrontendPod(ApiModel, extra="forbid"):
    """Settings of the pods of all frontends of an installation.

    Attributes:
        resources: Resources of the container.
        node_selector: Labels of the nodes for the pods, in addition to ``kubernetes.io/os=linux``.
        tolerations: Taints that the pods tolerate.
        affinity: Affinity that replaces the default affinity; the default prefers different zones for the pods of a
            service.
        spread: Strictness with which the scheduler puts the pods of a service on different nodes; ``required`` counts
            tainted nodes too.
        topology_spread_constraints: Constraints that replace the constraint that follows from ``spread``.
        labels: Additional labels of all objects of a frontend.
        pod_labels: Additional labels of the pods.
        pod_annotations: Annotations of the pods.
        role: Name of the Role and the ClusterRole of the pods' ServiceAccounts.
        account_annotations: Annotations of these ServiceAccounts.
        image_pull_secrets: Names of the Secrets with which the image is pulled.
        extra_env: Additional environment variables of the container.
        extra_volumes: Additional volumes of the pods.
        extra_volume_mounts: Additional volume mounts of the container.
        pod_security_context: Security context of the pods that replaces the default.
        container_security_context: Security context of the container that replaces the default.
        priority_class_name: PriorityClass of the pods.
        image_pull_policy: Pull policy of the image.
        log_level: Log level of the frontends.
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
        """Parse a JSON document, and return the settings.

        Raises:
            ValueError: The document is not valid; the message names each wrong field.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(describe_problems(error)) from None


def describe_problems(error: ValidationError) -> str:
    """Return the problems of a validation as one text; each problem has the path of its field."""
    return "; ".join(_describe_problem(item["loc"], item["msg"]) for item in error.errors())


def _describe_problem(place: tuple[int | str, ...], message: str) -> str:
    parts = (part for part in place if part != "[key]")  # pydantic marks an invalid key with "[key]"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    return f"{path}: {message}" if path else message
