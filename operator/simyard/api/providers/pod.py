"""Workers as pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import ApiModel, LocalReference, Name, Quantity, SecretReference, cel, map_by, rules
from simyard.api.providers.identity import IN_A_CLUSTER
from simyard.api.providers.scheduling import LabelValue, NodeSelector, Tolerations

AnnotationValue = Annotated[str, Field(max_length=4096)]


class Scratch(ApiModel):
    """The volume that a worker pod works in; it is made with the pod and goes with it."""

    size: Annotated[Quantity, Field(description="How large. A pod whose emptyDir grows larger is evicted.")] = "1Gi"
    storage_class_name: Annotated[
        Name | None, Field(description="It is a PersistentVolumeClaim of this class; by default an emptyDir.")
    ] = None


class PodProvider(ApiModel):
    """Workers are pods of this cluster, or of the one of `kubeconfigSecretRef`; docs/sites/pod.md says how."""

    model_config = rules(
        *IN_A_CLUSTER,
        *(
            cel(
                f"!has(self.{field}) || self.{field}.all(key, !key.startsWith('simyard.dev/'))",
                "simyard.dev/ is the platform's own prefix",
                f".{field}",
            )
            for field in ("labels", "annotations")
        ),
    )

    namespace: Annotated[Name | None, Field(description="Namespace of the pods; the worker's own by default.")] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None
    adapter_image: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            description="An init container of this image (Simyard's own) brings the adapter into images that have "
            "none; they need a `python3` of 3.11 or newer. By default the service's image has `simyard-adapter`.",
        ),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None, Field(description="When images are pulled, as in pods.")
    ] = None
    image_pull_secrets: Annotated[
        list[LocalReference],
        Field(
            max_length=16,
            description="Secrets in the pods' namespace for pulling images.",
            json_schema_extra=map_by("name"),
        ),
    ] = []
    service_account_name: Annotated[
        Name | None, Field(description="Identity of the pods; they are never given its token.")
    ] = None
    node_selector: NodeSelector = {}
    tolerations: Tolerations = []
    priority_class_name: Annotated[Name | None, Field(description="PriorityClass of the pods.")] = None
    runtime_class_name: Annotated[Name | None, Field(description="RuntimeClass of the pods: gVisor, Kata, ...")] = None
    user_id: Annotated[
        int,
        Field(
            ge=0,
            le=2**31 - 1,
            description="User and group that workers run as. 0: as the image or the cluster says, but never root.",
        ),
    ] = 65532
    read_only_root_filesystem: Annotated[
        bool, Field(description="Workers may write to their scratch volume and `/tmp` only.")
    ] = False
    scratch: Scratch = Scratch()
    termination_grace_period_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="How long a pod may take to end before it is killed.")
    ] = 30
    labels: Annotated[
        dict[str, LabelValue], Field(max_length=32, description="Labels that the pods get in addition.")
    ] = {}
    annotations: Annotated[
        dict[str, AnnotationValue],
        Field(max_length=32, description="Annotations that the pods get."),
    ] = {}
