# SPDX-License-Identifier: Apache-2.0
"""Define a service whose actions are counted outside of its workers.

The counts show every action that is lost or runs twice.
"""

from __future__ import annotations

from typing import Any

import script_pods
from script_pods import Json

SERVICE = "counting"
OBSERVER = "observer"
PORT = 8000


def service(image: str, namespace: str, *, frontends: int = 0, **images: str) -> Json:
    """Return the SimulationService: ``count`` reports its begin to the observer, waits, and reports its end.

    The action is not idempotent, so it must never run twice. ``factorise`` and the attribute need no observer.
    """
    key = {"name": "key", "type": "string", "required": True, "maxLength": 64, "pattern": "[a-z0-9-]+"}
    seconds = {"name": "seconds", "type": "number", "required": True, "minimum": 0, "maximum": 60}
    number = {"name": "number", "type": "integer", "required": True, "minimum": 2}
    count: Json = {"timeoutSeconds": 120, "parameters": [key, seconds], "result": [{"name": "run", "type": "string"}]}
    observer = f"{OBSERVER}.{namespace}.svc:{PORT}"
    counted = {
        "command": ["python3", "$(simyard.files)/tally.py", observer, "$(key)", "$(seconds)"],
        "results": [{"name": "run", "pattern": r"run (\w+)"}],
    }
    factors: Json = {"name": "factors", "type": "string", "required": True}
    spec: dict[str, Any] = {
        "displayName": "Counting",
        "resources": {"cpu": "100m", "memory": "128Mi"},
        "readinessDeadlineSeconds": 120,
        "images": {"pod": image, **images},
        "interface": {
            "attributes": [{"name": "release", "type": "string"}],
            "actions": [
                {"name": "count", "mode": "Async", **count},
                {"name": "tally", "mode": "Sync", **count, "timeoutSeconds": 30},
                {
                    "name": "factorise",
                    "mode": "Sync",
                    "idempotent": True,
                    "timeoutSeconds": 30,
                    "parameters": [number],
                    "result": [factors],
                },
            ],
        },
        "connector": {
            "files": [{"path": "tally.py", "content": (script_pods.FOLDER / "tally.py").read_text()}],
            "commands": {
                "actions": [
                    {"action": "count", **counted},
                    {"action": "tally", **counted},
                    {
                        "action": "factorise",
                        "command": ["factor", "$(number)"],
                        "results": [{"name": "factors", "pattern": r"\d+: ([\d ]+)"}],
                    },
                ],
                "attributes": [
                    {"attribute": "release", "command": ["uname", "-r"], "pattern": r"(\S+)", "intervalSeconds": 3600}
                ],
            },
        },
    }
    if frontends:
        spec["frontend"] = {"replicas": frontends}
    return {
        "apiVersion": "simyard.dev/v1alpha1",
        "kind": "SimulationService",
        "metadata": {"name": SERVICE},
        "spec": spec,
    }


def pool(name: str, replicas: int, *sites: str, **spec: Any) -> Json:
    """Return a WorkerPool of the service."""
    placement = {"sites": list(sites), **spec.pop("placement", {})}
    return {
        "apiVersion": "simyard.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"serviceRef": {"name": SERVICE}, "replicas": replicas, "placement": placement, **spec},
    }
