# SPDX-License-Identifier: Apache-2.0
"""Make the cluster, put the images of this tree on it, install the chart.

python e2e/cluster/deploy.py up        # cluster, images, chart
python e2e/cluster/deploy.py deploy    # images and chart, on the cluster that is there
python e2e/cluster/deploy.py down
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import environment
import report
import yaml
from cluster import CHART, NAMESPACE, RELEASE, VALUES, Cluster, Json, base_image, restricted_namespace

BEAM = environment.ROOT / "examples" / "calculix-beam"
RABBITMQ_OPERATOR = "https://github.com/rabbitmq/cluster-operator/releases/download/v2.16.0/cluster-operator.yml"
BUILD_SECONDS = 1800


def build() -> tuple[str, str]:
    """Build Simyard's image and that of the CalculiX service; return their names, whose tag hashes the content."""
    base = base_image()
    environment.run(str(environment.ROOT / "hack" / "image.sh"), "simyard:e2e", seconds=BUILD_SECONDS, BASE=base)
    tag = "e2e-" + _inspect("simyard:e2e", "{{.Id}}").removeprefix("sha256:")[:12]
    image, ccx_image = f"simyard:{tag}", f"calculix-beam:{tag}"
    environment.run("docker", "tag", "simyard:e2e", image)
    built = ("docker", "build", "-t", ccx_image, "--build-arg", f"SIMYARD={image}", str(BEAM))
    environment.run(*built, seconds=BUILD_SECONDS)
    size, base_size = (int(_inspect(name, "{{.Size}}")) for name in (image, base))
    report.add("Image", "size", size / 1e6, "MB")
    report.add("Image", "size above the base image", (size - base_size) / 1e6, "MB")
    return image, ccx_image


def deploy() -> None:
    """Build and load the images, install or upgrade the chart, and wait until everything serves."""
    image, ccx_image = build()
    environment.load(image, ccx_image)
    cluster = Cluster(image, ccx_image)
    _have_broker_operator(cluster)
    _write_values(image)
    cluster.apply(restricted_namespace(NAMESPACE))
    installed = RELEASE in cluster.helm("list", "--short", "--all").split()
    begin = time.monotonic()
    cluster.helm("upgrade", "--install", RELEASE, str(CHART), f"--values={VALUES}")
    applied = time.monotonic()
    wait_until_available(cluster)
    what = "helm upgrade" if installed else "helm install"
    report.add("Installation", f"{what}: duration of the command", applied - begin, "s")
    report.add("Installation", f"{what}: everything Available after", time.monotonic() - begin, "s")


def wait_until_available(cluster: Cluster) -> None:
    """Wait until broker, operators and aggregated API serve."""
    broker = "rabbitmqcluster/simyard-broker"
    generation = cluster.get(broker, f"-n={NAMESPACE}")["metadata"]["generation"]
    cluster.wait(broker, f"jsonpath={{.status.observedGeneration}}={generation}", NAMESPACE)
    cluster.rollout("statefulset/simyard-broker-server", NAMESPACE, 600)
    cluster.wait(broker, "condition=AllReplicasReady", NAMESPACE, 300)
    for role in ("operator", "apiserver"):
        cluster.rollout(f"deployment/simyard-{role}", NAMESPACE)
    cluster.wait("apiservice/v1alpha1.subresources.simyard.dev", "condition=Available", seconds=120)


def installed() -> Cluster:
    """Return the present cluster; its images are read from the installed objects.

    Raises:
        AssertionError: the chart is not installed.
    """
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    get = ("kubectl", "get", "deployment/simyard-operator", f"--namespace={NAMESPACE}", "-o", path)
    image = environment.run(*get)
    return Cluster(image, f"calculix-beam:{image.rpartition(':')[2]}")


def have_site(cluster: Cluster) -> None:
    """Apply a CloudSite whose machines are pods in the namespaces of their workers."""
    name = "simyard-site-pod"
    binding: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "simyard-operator", "namespace": NAMESPACE}],
    }
    site = {"apiVersion": "simyard.dev/v1alpha1", "kind": "CloudSite", "metadata": {"name": cluster.site}}
    cluster.apply(binding, {**site, "spec": {"provider": {"pod": {"imagePullPolicy": "IfNotPresent"}}}})
    cluster.wait(f"cloudsite/{cluster.site}", "condition=Ready")


def _write_values(image: str) -> None:
    values = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text())
    repository, _, tag = image.rpartition(":")
    values["image"] = {"repository": repository, "tag": tag}
    if broker := environment.variables().get("RABBITMQ_IMAGE"):
        values["broker"]["image"] = broker
    VALUES.parent.mkdir(parents=True, exist_ok=True)
    VALUES.write_text(yaml.safe_dump(values))


def _have_broker_operator(cluster: Cluster) -> None:
    kinds = cluster.get("crds")["items"]
    if not any(kind["metadata"]["name"] == "rabbitmqclusters.rabbitmq.com" for kind in kinds):
        cluster.kubectl("apply", "--server-side", "-f", os.environ.get("E2E_RABBITMQ_OPERATOR") or RABBITMQ_OPERATOR)
    cluster.rollout("deployment/rabbitmq-cluster-operator", "rabbitmq-system")


def _inspect(image: str, what: str) -> str:
    return environment.run("docker", "image", "inspect", image, "--format", what).strip()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("command", choices=("up", "deploy", "down"))
    command = parser.parse_args().command
    if command == "down":
        environment.down()
        return
    if command == "up":
        environment.up()
    deploy()


if __name__ == "__main__":
    main()
