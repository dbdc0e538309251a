# SPDX-License-Identifier: Apache-2.0
"""Call actions with files, and follow them as a requester does: with a watch."""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from kube_api import build_path
from simyard.api import names
from simyard.api.base import Json
from simyard_bench import workload
from simyard_bench.world import World
from simyard_dev.errors import SetupError

SECONDS = 1800.0


@dataclass(frozen=True)
class Ended:
    """A finished action: the times of the request and of the end, as the requester saw them, and the result."""

    asked: float
    seen: float
    result: Json


class Actions:
    """A caller of actions on the pool of a benchmark. It waits for their end by a watch."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.api
        self._numbers = itertools.count()

    def call(self, action: str, parameters: Json) -> Ended:
        """Call an action and return it when it has ended.

        Raises:
            SetupError: the action failed, or did not end in time.
        """
        return self.call_all(action, [parameters])[0]

    def call_all(self, action: str, parameters: list[Json]) -> list[Ended]:
        """Call an action with each of these parameters at once, and return the actions when all have ended.

        Raises:
            SetupError: an action failed, or did not end in time.
        """
        asked: dict[str, float] = {}
        ended: dict[str, Ended] = {}
        with closing(self._watch()) as events:
            next(events)
            for each in parameters:
                name = f"{action}-{next(self._numbers)}"
                asked[name] = time.time()
                answer = self._api.create(_make_manifest(name, action, each))
                if not answer.accepted:
                    raise SetupError(f"the action {action} was refused: {answer.message}")
            deadline = time.time() + SECONDS
            while len(ended) < len(asked):
                event = next(events)
                name, status = event["metadata"]["name"], event.get("status", {})
                if "failure" in status:
                    raise SetupError(f"the action {name} failed: {status['failure']}")
                if name in asked and "finishedTime" in status:
                    ended.setdefault(name, Ended(asked[name], time.time(), status.get("result", {})))
                if time.time() > deadline:
                    raise SetupError(f"only {len(ended)} of {len(asked)} actions ended within {SECONDS:.0f} s")
        return [ended[name] for name in asked]

    def _watch(self) -> Generator[Json, None, None]:
        """Yield an empty object when the watch has begun, and then each changed action.

        Raises:
            SetupError: the API server refused the watch, or ended it.
        """
        server = urlsplit(self._world.environment.control_plane.server)
        connection = http.client.HTTPSConnection(
            str(server.hostname), server.port, timeout=SECONDS, context=self._world.administrator
        )
        with closing(connection):
            path = build_path(_make_manifest("", "", {}), named=False)
            connection.request("GET", f"{path}?watch=true&timeoutSeconds={SECONDS:.0f}")
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise SetupError(f"the API server refused the watch of actions: {response.status}")
            yield {}
            for line in response:
                yield json.loads(line)["object"]
        raise SetupError("the API server ended the watch of actions")


def _make_manifest(name: str, action: str, parameters: Json) -> Json:
    return {
        "apiVersion": names.SERVICE_ACTIONS.api_version,
        "kind": names.SERVICE_ACTIONS.kind,
        "metadata": {"name": name, "namespace": workload.NAMESPACE},
        "spec": {
            "target": {"kind": names.WORKER_POOLS.kind, "name": workload.NAME},
            "action": action,
            "parameters": parameters,
        },
    }
