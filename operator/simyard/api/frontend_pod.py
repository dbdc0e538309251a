"""What an installation says about the pods of its OCCI frontends: the value of ``--frontend-pod``.

There are no defaults here: what is not given is as Kubernetes, or ``simyard frontend``, has it. The chart's values
(``frontends.*``) are the defaults of an installation. Its fields bear the names of these values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from simyard.api.base import QUANTITY, ApiModel, Json
from simyard.api.providers.scheduling import NodeSelector, Toleration
from simyard.api.quantities import canonical


def _text(value: Any) -> Any:
    """A number as text: quantities may be written without quotes."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Amount = Annotated[str, BeforeValidator(_text), Field(max_length=32, pattern=QUANTITY), AfterValidator(canonical)]
"""A quantity as the API server writes it, so that what it has can be compared with what is wanted."""
Amounts = dict[Literal["cpu", "memory", "ephemeral-storage"], Amount]


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
    pod_annotations: annotations of the pods.
    priority_class_name: their PriorityClass.
    image_pull_policy: when their image is pulled.
    log_level: how much they log.
    """

    resources: FrontendResources = FrontendResources()
    node_selector: NodeSelector = {}
    tolerations: list[FrontendToleration] = []
    affinity: Json = {}
    pod_annotations: dict[str, str] = {}
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
            raise ValueError("; ".join(_problem(item["loc"], item["msg"]) for item in error.errors())) from None


def _problem(place: tuple[int | str, ...], message: str) -> str:
    parts = (part for part in place if part != "[key]")  # pydantic's mark of a key that is wrong itself
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    return f"{path}: {message}" if path else message
