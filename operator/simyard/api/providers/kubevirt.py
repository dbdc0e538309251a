"""Workers as KubeVirt VirtualMachineInstances."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Name, SecretReference


class KubevirtProvider(ApiModel):
    """Workers are KubeVirt VirtualMachineInstances, in this cluster or in the one of `kubeconfigSecretRef`."""

    namespace: Annotated[Name | None, Field(description="Namespace of the machines; the pool's own by default.")] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None
