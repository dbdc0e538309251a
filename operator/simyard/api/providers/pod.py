# SPDX-License-Identifier: Apache-2.0
"""Settings of sites whose workers are pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import (
    ApiModel,
    LocalReference,
    Name,
    Quantity,
    SecretReference,
    add_cel_rules,
    make_cel_rule,
    map_by,
)
from simyard.api.providers.identity import IN_A_CLUSTER
from simyard.api.providers.scheduling import LabelValue, NodeSelector, Tolerations

AnnotationValue = Annotated[str, Field(max_length=4096)]


class Scratch(ApiModel):
    """Scratch volume of a worker's pod; it is created and deleted with the pod."""

    size: Annotated[
        Quantity, Field(description="Size of the volume. A pod whose emptyDir grows larger is evicted.")
    ] = "1Gi"
    storage_class_name: Annotated[
        Name | None, Field(description="Class of a PersistentVolumeClaim for the volume; by default it is an emptyDir.")
    ] = None


class PodProvider(ApiModel):
    """Site whose workers are pods of this or of another cluster (`kubeconfigSecretRef`); see docs/sites/pod.md."""

    model_config = add_cel_rules(
        *IN_A_CLUSTER,
        *(
            make_cel_rule(
                f"!has(self.{field}) || self.{field}.all(key, !key.startsWith('simyard.dev/'))",
                "must not have keys with the prefix simyard.dev/, which belongs to the platform",
                f".{field}",
            )
            for field in ("labels", "annotations")
        ),
    )

    namespace: Annotated[
        Name | None, Field(description="Namespace of the pods; by default the namespace of the worker.")
    ] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None
    adapter_image: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            description="Simyard's own image, from which an init container copies the adapter into each pod. The"
            " service's image then needs only a `python3` of version 3.11 or later. Without this field, the"
            " service's image must contain `simyard-adapter`.",
        ),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None, Field(description="Pull policy of the images, as in pods.")
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
        Name | None, Field(description="ServiceAccount of the pods. The pods never get the token of this account.")
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
            description="User and group id of the workers. 0: the user of the image or the cluster, but never root.",
        ),
    ] = 65532
    read_only_root_filesystem: Annotated[
        bool, Field(description="Lets workers write only to their scratch volume and `/tmp`.")
    ] = False
    scratch: Scratch = Scratch()
    termination_grace_period_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="Time that a pod gets to stop before it is killed.")
    ] = 30
    labels: Annotated[dict[str, LabelValue], Field(max_length=32, description="Additional labels of the pods.")] = {}
    annotations: Annotated[
        dict[str, AnnotationValue],
        Field(max_length=32, description="Additional annotations of the pods."),
    ] = {}
