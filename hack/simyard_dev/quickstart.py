# SPDX-License-Identifier: Apache-2.0
"""Do the main job: publish the CalculiX service, start a pool of workers, solve a beam, and report the result."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from simyard.api import names
from simyard_dev.environment import Environment
from simyard_dev.errors import SetupError
from simyard_dev.files import write_whole
from simyard_dev.packages import ensure_packages
from simyard_dev.platform import Platform
from simyard_dev.progress import say, step

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "calculix-beam"
SOLVER_PACKAGES = ("calculix-ccx",)
NAMESPACE, POOL, ACTION = "default", "beams", "solve"
AVAILABLE_SECONDS = 120


def run(environment: Environment, *, occi: bool = False) -> None:
    """Do the whole job and write `summary.json`, without changes to existing objects.

    With ``occi``, run OCCI frontends too.

    Raises:
        SetupError: a prerequisite is missing or a step failed; the message gives the reason.
    """
    ensure_packages(SOLVER_PACKAGES)
    environment.up(fresh=environment.is_down())
    Platform(environment, occi=occi).up()
    summary_file = environment.directory / "summary.json"
    t_m = _start_pool(environment, summary_file)
    with step(f"calling {ACTION} on the pool through the Kubernetes API"):
        parameters = json.loads((EXAMPLE / "solve.json").read_text())["parameters"]
        answer = _solve(environment, parameters)
    summary = _summary(environment, t_m, parameters, answer["result"])
    write_whole(summary_file, json.dumps(summary, indent=2) + "\n")
    _print_report(environment, summary, answer)


def _start_pool(environment: Environment, summary_file: Path) -> float:
    """Apply the example, wait for the pool, and return T_m: the seconds until kubectl saw the pool available.

    If the pool exists already, the function does not change it, because the user may have scaled it.
    """
    kubectl = environment.control_plane.kubectl
    files = ("-f", str(EXAMPLE / "service.yaml"), "-f", str(EXAMPLE / "site.yaml"))
    kubectl("apply", "--server-side", "--force-conflicts", *files)
    kubectl("wait", "--for=condition=Available", "--timeout=60s", "simulationservice/calculix-beam")
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", "cloudsite/local")
    is_new = not kubectl("get", "workerpool", POOL, "--ignore-not-found", "-o", "name")
    with step("starting the pool of workers"):
        requested = time.monotonic()
        if is_new:
            kubectl("apply", "--server-side", "-f", str(EXAMPLE / "pool.yaml"))
        try:
            wait = ("--for=condition=Available", f"--timeout={AVAILABLE_SECONDS}s")
            kubectl("wait", f"workerpool/{POOL}", *wait)
        except SetupError as problem:
            raise SetupError(f"{problem}\n{kubectl('describe', 'workerpool', POOL)}") from None
        waited = time.monotonic() - requested
    if is_new or not summary_file.exists():
        return round(waited, 3)
    say("the pool runs since an earlier quickstart, whose start times are shown")
    earlier: float = json.loads(summary_file.read_text())["t_m_s"]
    return earlier


def _solve(environment: Environment, parameters: dict[str, Any]) -> dict[str, Any]:
    path = (
        f"/apis/{names.SUBRESOURCES_API_VERSION}/namespaces/{NAMESPACE}"
        f"/{names.WORKER_POOLS.plural}/{POOL}/actions/{ACTION}"
    )
    body = json.dumps({"parameters": parameters})
    answer: dict[str, Any] = json.loads(
        environment.control_plane.kubectl("create", "--raw", path, "-f", "-", stdin=body)
    )
    return answer


def _summary(
    environment: Environment, t_m: float, parameters: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any]:
    kubectl = environment.control_plane.kubectl
    # T_m is the time at which the status with T_r was published, so only the next status can have it.
    kubectl("wait", f"workerpool/{POOL}", "--for=jsonpath={.status.start.publishedMilliseconds}", "--timeout=10s")
    pool = json.loads(kubectl("get", "workerpool", POOL, "-o", "json"))
    start = pool["status"]["start"]
    return {
        "pool": {
            "namespace": NAMESPACE,
            "name": POOL,
            "replicas": pool["spec"]["replicas"],
            "ready": pool["status"]["readyReplicas"],
        },
        "t_boot_s": start["bootMilliseconds"] / 1000,
        "t_r_s": start["registeredMilliseconds"] / 1000,
        "t_m_s": t_m,
        "action": {
            "name": ACTION,
            "parameters": parameters,
            "result": result,
            "theory": result["theory"],
            "error_percent": result["error_percent"],
        },
    }


def _print_report(environment: Environment, summary: dict[str, Any], answer: dict[str, Any]) -> None:
    bin_directory = environment.directory / "bin"
    variables = {**os.environ, "KUBECONFIG": str(environment.kubeconfig)}
    variables["PATH"] = f"{bin_directory}:{variables['PATH']}"
    plugin = shutil.which("kubectl-simyard", path=variables["PATH"]) or "kubectl-simyard"
    timeline = subprocess.run(
        [plugin, "timeline", POOL], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    if timeline.returncode:
        raise SetupError(f"kubectl simyard timeline {POOL}: {timeline.stderr.strip()}")
    result = summary["action"]["result"]
    shown = Path(os.path.relpath(environment.directory))
    print(f"""
{timeline.stdout.rstrip()}
kubectl saw all workers ready after {summary["t_m_s"]:.3f} s

A cantilever of {result["elements"]} finite elements, solved by CalculiX on worker {answer["worker"]} \
in {answer["seconds"]:.2f} s:
  deflection at the tip   {result["max_displacement"]:.4f} mm
  Euler-Bernoulli         {result["theory"]:.4f} mm
  difference              {result["error_percent"]:.3f} %

The system keeps running. Its site is emulated: its machines are processes on this computer. Try:
  export KUBECONFIG=$PWD/{shown}/kubeconfig PATH=$PWD/{shown}/bin:$PATH
  kubectl get workerpools,workers
  kubectl simyard describe pool/{POOL}
  kubectl simyard action pool/{POOL} {ACTION} -p length=2000 -p load=20
`make quickstart-down` stops the system. The summary is in {shown}/summary.json.""")
