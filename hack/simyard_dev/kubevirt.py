# SPDX-License-Identifier: Apache-2.0
"""Install the definitions and the instance types of KubeVirt, read from its Go module.

No program of KubeVirt runs. The schemas are those in the source of KubeVirt's operator, which installs them in a
cluster. The lines around each schema (names, scope, versions) follow ``components/crds.go`` of the same release.
"""

import functools
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.errors import SetupError
from simyard_dev.files import locked, write_whole
from simyard_dev.progress import step

MODULE = tools.GoModule(name="kubevirt", source="kubevirt.io/kubevirt", packages={})
COMPONENTS = Path("pkg/virt-operator/resource/generate/components")
READY_SECONDS = 240
_SCHEMA = re.compile(r'^\t"(?P<kind>\w+)": `(?P<yaml>.*?)`,$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class _Kind:
    """The parts of the definition of a kind that ``components/crds.go`` adds to its schema."""

    kind: str
    group: str = "kubevirt.io"
    versions: tuple[str, ...] = ("v1", "v1alpha3")
    scope: str = "Namespaced"
    short_names: tuple[str, ...] = ()
    status: bool = False

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def build_definition(self, schema: Any) -> dict[str, Any]:
        """Return the CustomResourceDefinition; its first version is the stored one."""
        versions = [
            {"name": name, "served": True, "storage": name == self.versions[0], "schema": schema}
            | ({"subresources": {"status": {}}} if self.status else {})
            for name in self.versions
        ]
        names = {"kind": self.kind, "plural": f"{self.singular}s", "singular": self.singular}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.singular}s.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": names | {"shortNames": list(self.short_names)},
                "versions": versions,
            },
        }


_INSTANCETYPE = "instancetype.kubevirt.io"
_KINDS = (
    _Kind("KubeVirt", short_names=("kv", "kvs"), status=True),
    _Kind("VirtualMachineInstance", short_names=("vmi", "vmis")),
    _Kind("VirtualMachineInstancetype", _INSTANCETYPE, ("v1beta1",)),
    _Kind("VirtualMachineClusterInstancetype", _INSTANCETYPE, ("v1beta1",), "Cluster"),
    _Kind("VirtualMachinePreference", _INSTANCETYPE, ("v1beta1",)),
    _Kind("VirtualMachineClusterPreference", _INSTANCETYPE, ("v1beta1",), "Cluster"),
)


@dataclass(frozen=True)
class KubeVirtRelease:
    """The definitions and the instance types that a release of KubeVirt installs."""

    version: str
    definitions: list[dict[str, Any]]
    instancetypes: list[dict[str, Any]]
    preferences: list[dict[str, Any]]


@functools.cache
def release() -> KubeVirtRelease:
    """Return the release that hack/tools/kubevirt pins; the cache of the tools keeps it after the first read.

    Raises:
        SetupError: Go is missing, the module cannot be downloaded, or it does not match go.sum.
    """
    name = MODULE.cache_directory.name
    kept = MODULE.cache_directory.with_name(f"{name}.json")
    with locked(kept.with_name(f"{name}.lock")):
        if not kept.exists():
            with step(f"reading the definitions of {MODULE.source} {MODULE.version}"):
                write_whole(kept, json.dumps(_read(tools.download(MODULE) / COMPONENTS)))
    return KubeVirtRelease(MODULE.version, **json.loads(kept.read_bytes()))


def install(control_plane: ControlPlane) -> KubeVirtRelease:
    """Apply the definitions to a control plane and wait until it serves them; no controller acts on their objects.

    Raises:
        SetupError: the control plane refused a definition.
    """
    found = release()
    items = {"apiVersion": "v1", "kind": "List", "items": found.definitions}
    control_plane.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(items))
    names = [definition["metadata"]["name"] for definition in found.definitions]
    control_plane.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS}s", "crd", *names)
    deadline = time.monotonic() + READY_SECONDS
    for name in names:  # a definition is served a moment after it is established
        while True:
            try:
                control_plane.kubectl("get", name, "--all-namespaces")
                break
            except SetupError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    return found


def _read(folder: Path) -> dict[str, Any]:
    source = (folder / "validations_generated.go").read_text()
    schemas = {found["kind"]: found["yaml"].replace('` + "`" + `', "`") for found in _SCHEMA.finditer(source)}
    bundles = folder / "data" / "common-instancetypes"
    return {
        "definitions": [kind.build_definition(_load(schemas[kind.singular])[0]) for kind in _KINDS],
        "instancetypes": _load((bundles / "common-clusterinstancetypes-bundle.yaml").read_text()),
        "preferences": _load((bundles / "common-clusterpreferences-bundle.yaml").read_text()),
    }


def _load(text: str) -> list[dict[str, Any]]:
    """Return all YAML documents in a text. Use the C loader if there is one, because the schemas have a megabyte."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]
