# SPDX-License-Identifier: Apache-2.0
"""Build the Go programs of the environment from the modules that hack/tools pins.

The user's cache directory keeps the programs, in one folder per pinned module. Programs in the folder
KUBEBUILDER_ASSETS are used instead.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simyard_dev.errors import SetupError
from simyard_dev.files import locked
from simyard_dev.progress import step

MODULES_DIRECTORY = Path(__file__).resolve().parent.parent / "tools"
DOWNLOAD_SECONDS = 300
GO_REMEDY = "install Go (https://go.dev/doc/install; on Debian 12: golang-go from bookworm-backports)"


@dataclass(frozen=True)
class GoModule:
    """A Go module under hack/tools, and the programs built from it."""

    name: str
    """The folder under hack/tools."""
    source: str
    """The Go module of the programs; go.mod pins its version."""
    packages: Mapping[str, str]
    """The Go package of each program, by the name of the program."""
    stamps: tuple[str, ...] = ()
    """Variables that the linker sets; `{version}` is that of the source, `{minor}` the minor version of Kubernetes."""

    @property
    def directory(self) -> Path:
        """The folder of go.mod and go.sum."""
        return MODULES_DIRECTORY / self.name

    @property
    def version(self) -> str:
        """The version of the source that go.mod pins, such as "v1.34.2"."""
        pattern = rf"^(?:require )?\s*{re.escape(self.source)} (v\S+)"
        found = re.search(pattern, (self.directory / "go.mod").read_text(), re.MULTILINE)
        if not found:
            raise SetupError(f"{self.directory / 'go.mod'} does not require {self.source}")
        return found[1]

    @property
    def build_flags(self) -> tuple[str, ...]:
        """The flags of `go build`; they omit debugging data, which saves a tenth of the time."""
        minor = KUBERNETES.version.split(".")[1]
        stamps = (f"-X {stamp.format(version=self.version, minor=minor)}" for stamp in self.stamps)
        return "-gcflags=all=-dwarf=false", f"-ldflags={' '.join(['-s -w', *stamps])}"

    @property
    def cache_directory(self) -> Path:
        """The folder of the built programs; another pin or another build flag gives another folder."""
        digest = hashlib.sha256(" ".join(self.build_flags).encode())
        for path in (self.directory / "go.mod", self.directory / "go.sum", *sorted(self.directory.rglob("*.go"))):
            digest.update(path.read_bytes())
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "simyard" / "tools" / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"


_KUBERNETES_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
KUBERNETES = GoModule(
    name="kubernetes",
    source="k8s.io/kubernetes",
    packages={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    stamps=tuple(
        f"{package}.{variable}"
        for package in _KUBERNETES_VERSION_PACKAGES
        for variable in ("gitVersion={version}", "gitMajor=1", "gitMinor={minor}", "gitTreeState=clean")
    ),
)
ETCD = GoModule(
    name="etcd",
    source="go.etcd.io/etcd/server/v3",
    packages={"etcd": "go.etcd.io/etcd/server/v3"},
)
KWOK = GoModule(
    name="kwok",
    source="sigs.k8s.io/kwok",
    packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    stamps=("sigs.k8s.io/kwok/pkg/consts.Version={version}",),
)
HELM = GoModule(
    name="helm",
    source="helm.sh/helm/v3",
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    stamps=(
        "helm.sh/helm/v3/internal/version.version={version}",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor={minor}",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={minor}",
    ),
)
VERSITYGW = GoModule(
    name="versitygw",
    source="github.com/versity/versitygw",
    packages={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
    stamps=("main.Version={version}",),
)
VIRT = GoModule(
    name="virt",
    source="kubevirt.io/kubevirt",
    packages={name: f"kubevirt.io/kubevirt/cmd/{name}" for name in ("virt-api", "virt-controller")}
    | {"virt-manifests": "simyard.dev/hack/tools/virt/virt-manifests"},
    stamps=("kubevirt.io/client-go/version.gitVersion={version}",),
)
CERT_MANAGER = GoModule(
    name="cert-manager",
    source="github.com/cert-manager/cert-manager",
    packages={"cert-manager": "simyard.dev/hack/tools/cert-manager/cert-manager"},
    stamps=("github.com/cert-manager/cert-manager/pkg/util.AppVersion={version}",),
)
GO_MODULES = (KUBERNETES, ETCD, KWOK, HELM, VERSITYGW)
"""The modules that every developer needs."""
TOOLS = tuple(name for module in GO_MODULES for name in module.packages)
_ALL_MODULES = (*GO_MODULES, VIRT, CERT_MANAGER)
_ALL_TOOLS = tuple(name for module in _ALL_MODULES for name in module.packages)


def ensure(names: Iterable[str] = TOOLS) -> dict[str, Path]:
    """Return the path of each named program; build the programs that are missing.

    Several processes may call this at the same time; each program is built once.

    Raises:
        SetupError: Go is missing or too old, or a build failed; the message gives the remedy.
    """
    wanted = set(names)
    unknown = wanted.difference(_ALL_TOOLS)
    if unknown:
        raise SetupError(f"unknown tools {', '.join(sorted(unknown))}: choose from {', '.join(_ALL_TOOLS)}")
    found = {name: path for name in wanted if (path := _from_assets(name))}
    for module in _ALL_MODULES:
        ours = [name for name in module.packages if name in wanted and name not in found]
        if any(not (module.cache_directory / name).exists() for name in ours):
            with locked(module.cache_directory.parent / f"{module.cache_directory.name}.lock"):
                _build(module, [name for name in ours if not (module.cache_directory / name).exists()])
        found |= {name: module.cache_directory / name for name in ours}
    return found


def _from_assets(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return None
    path = Path(assets).absolute() / name
    return path if os.access(path, os.X_OK) else None


def _build(module: GoModule, names: list[str]) -> None:
    """Build all programs with one command, so that Go compiles shared packages once; then move them to their folder."""
    if not names:
        return
    check_go(module)
    target = module.cache_directory
    target.mkdir(parents=True, exist_ok=True)
    packages = [module.packages[name] for name in names]
    with (
        step(f"building {', '.join(names)} ({module.source} {module.version})"),
        tempfile.TemporaryDirectory(dir=target, prefix=".build-") as scratch,
    ):
        result = _go(module, "build", *module.build_flags, "-o", f"{scratch}/", *packages)
        if result.returncode:
            tail = "\n".join(result.stdout.splitlines()[-20:])
            raise SetupError(f"go build of {', '.join(names)} failed in {module.directory}:\n{tail}")
        for name in names:
            (Path(scratch) / _built_name(module.packages[name])).replace(target / name)


def _built_name(package: str) -> str:
    """Return the file name that `go build` gives to a package: the last path element that is no major version."""
    elements = package.split("/")
    return elements[-2] if re.fullmatch(r"v\d+", elements[-1]) else elements[-1]


def check_go(module: GoModule) -> None:
    """Check that a Go compiler is present that can build the module.

    Raises:
        SetupError: Go is missing or too old for the module.
    """
    if not shutil.which("go"):
        raise SetupError(f"Go is needed to build {module.name} and is not on the PATH: {GO_REMEDY}")
    result = _go(module, "env", "GOVERSION")
    if result.returncode:
        raise SetupError(f"this Go cannot build {module.name}: {result.stdout.strip()}\n{GO_REMEDY}")


def download(module: GoModule) -> Path:
    """Return the folder of a module's source from Go's cache or proxy, verified with go.sum.

    Raises:
        SetupError: Go is missing, the module cannot be downloaded, or it does not match go.sum.
    """
    check_go(module)
    wanted = f"{module.source}@{module.version}"
    result = subprocess.run(
        ["go", "mod", "download", "-json", wanted],
        cwd=module.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    answer = json.loads(result.stdout or "{}")
    if result.returncode or "Dir" not in answer:
        raise SetupError(f"go mod download {wanted}: {answer.get('Error') or result.stderr.strip()}")
    if (
        f"{module.source} {module.version} {answer['Sum']}"
        not in (module.directory / "go.sum").read_text().splitlines()
    ):
        raise SetupError(f"{module.directory / 'go.sum'} does not have {wanted} {answer['Sum']}")
    return Path(answer["Dir"])


def _go(module: GoModule, *arguments: str) -> subprocess.CompletedProcess[str]:
    flags = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false", "GOWORK": "off"}
    return subprocess.run(
        ["go", *arguments],
        cwd=module.directory,
        env={**os.environ, **flags},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
