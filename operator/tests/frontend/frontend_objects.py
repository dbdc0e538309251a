# SPDX-License-Identifier: Apache-2.0
"""Raw objects for the copies of a frontend, and a Kubernetes API that keeps objects in a dictionary."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend.access import Access
from simyard.frontend.changes.scaling import WAIT_SECONDS
from simyard.frontend.exchange import Identity, OcciRequest, parse_target
from simyard.frontend.exchange import OcciResponse as Response
from simyard.frontend.handlers import Handlers
from simyard.frontend.objects import Objects
from simyard.occi.model import Draft, Entity
from simyard.occi.standard import AMQPLINK, COMPUTE
from simyard.occi.validation import check_creation
from simyard_adapter.file_urls import NO_URLS, AllowedUrls
from simyard_sites.kubernetes.client import KubeClient, PatchType
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

NAMESPACE = "lab"
BASE = "https://occi.example"
ADA = Identity("ada", "", ("users",), ())
INTERFACE: Json = {
    "attributes": [
        {"name": "length", "type": "number", "unit": "mm", "mutable": True, "default": 10, "minimum": 1},
        {"name": "state", "type": "string", "description": "What it does."},
    ],
    "actions": [
        {"name": "solve", "parameters": [{"name": "load", "type": "number", "required": True}]},
        {"name": "sweep", "mode": "Async"},
    ],
}
_versions = itertools.count(1)


def metadata(name: str, uid: str = "", **more: Any) -> Json:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid or f"uid-{name}",
        "generation": 1,
        "resourceVersion": str(next(_versions)),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **more,
    }


def condition(kind: str, good: bool, reason: str = "Registered") -> Json:
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def service(name: str = "beam", *, ready: bool = True, licence: Json | None = None, **spec: Any) -> Json:
    status = {"conditions": [condition("Available", ready, "Published")], "readyWorkers": 1}
    return {
        "metadata": metadata(name),
        "spec": {"interface": INTERFACE, "connector": {"python": {"class": "m:C"}}, **spec},
        "status": status | ({"licence": licence} if licence else {}),
    }


def pool(name: str = "pool", service: str = "beam", replicas: int = 1, **spec: Any) -> Json:
    return {
        "metadata": metadata(name),
        "spec": {"serviceRef": {"name": service}, "replicas": replicas, **spec},
        "status": {"readyReplicas": 0, "observedGeneration": 1, "conditions": []},
    }


def worker(
    name: str = "w",
    service: str = "beam",
    *,
    pool: str = "",
    ready: bool = True,
    reason: str = "Registered",
    machine: str = "Running",
    created: str = "2026-01-01T00:00:00Z",
    annotations: Json | None = None,
    uid: str = "",
    values: Json | None = None,
    addresses: list[Json] | None = None,
    **spec: Any,
) -> Json:
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "WorkerPool",
        "name": pool,
        "uid": f"uid-{pool}",
        "controller": True,
    }
    status: Json = {"machineState": machine, "conditions": [condition("Ready", ready, reason)]}
    if addresses is not None:
        status["addresses"] = addresses
    if values is not None:
        status |= {"attributes": values, "attributesTime": "2026-01-01T00:00:00Z"}
    return {
        "metadata": metadata(
            name,
            uid,
            creationTimestamp=created,
            annotations=annotations or {},
            ownerReferences=[owner] if pool else [],
        ),
        "spec": {"serviceRef": {"name": service}, "site": "site", **spec},
        "status": status,
    }


def link(name: str, source: str = "/compute/uid-w", **annotations: str) -> Json:
    """Return an OcciLink to a queue of its own name."""
    spec = {"kind": AMQPLINK, "source": source, "target": "amqp:///q", "attributes": {"occi.amqplink.queue": name}}
    return {"metadata": metadata(name, annotations=annotations), "spec": spec}


def site(name: str = "site", *, ready: bool = True, workers: int = 0, **spec: Any) -> Json:
    return {
        "metadata": metadata(name) | {"namespace": ""},
        "spec": {"provider": {"emulated": {}}, **spec},
        "status": {"conditions": [condition("Ready", ready)], "workers": {"total": workers}},
    }


class Kube:
    """Objects by resource and name. It has no watch: the frontend learns an object from the answer to its write.

    Attributes:
        calls: verb, resource and name of every request, in order.
        denied: returns true if a SubjectAccessReview is denied; its argument is the ``resourceAttributes``.
        before: called before each write, so that a test can write first.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.denied: Callable[[Json], bool] = lambda _: False
        self.reviews: list[Json] = []
        self.before: Callable[[str, str, str], None] = lambda *_: None
        self._uids = itertools.count(1)

    def put(self, resource: Resource, raw: Json) -> Json:
        self.objects[resource.plural, raw["metadata"]["name"]] = raw
        return raw

    def _begin(self, verb: str, resource: Resource, name: str) -> None:
        self.calls.append((verb, resource.plural, name))
        if verb != "get":
            self.before(verb, resource.plural, name)

    def _stored(self, resource: Resource, name: str) -> Json:
        if (raw := self.objects.get((resource.plural, name))) is None:
            raise NotFoundError(404, "NotFound", f"{name} not found")
        return raw

    def touch(self, resource: Resource, name: str) -> Json:
        raw = copy.deepcopy(self._stored(resource, name))
        raw["metadata"]["resourceVersion"] = str(next(_versions))
        return self.put(resource, raw)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        self._begin("get", resource, name)
        return copy.deepcopy(self._stored(resource, name))

    async def list_all(self, resource: Resource, namespace: str = "", **_: str) -> tuple[list[Json], str]:
        self.calls.append(("list", resource.plural, ""))
        return [copy.deepcopy(raw) for (plural, _), raw in self.objects.items() if plural == resource.plural], "1"

    async def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        name = body["metadata"]["name"]
        self._begin("create", resource, name)
        if (resource.plural, name) in self.objects:
            raise AlreadyExistsError(409, "AlreadyExists", f"{name} exists")
        made = metadata(name, f"made-{next(self._uids)}")
        return copy.deepcopy(self.put(resource, {**copy.deepcopy(body), "metadata": made | body["metadata"]}))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        kind: PatchType = PatchType.MERGE,
    ) -> Json:
        self._begin("patch", resource, name)
        raw = copy.deepcopy(self._stored(resource, name))
        if kind is PatchType.JSON:
            for operation in body:
                _apply(raw, operation)
        else:
            wanted = body.get("metadata", {})
            for field in ("uid", "resourceVersion"):
                if field in wanted and wanted[field] != raw["metadata"][field]:
                    raise ConflictError(409, "Conflict", "the object has been modified")
            _merge(raw, {**body, "metadata": {k: v for k, v in wanted.items() if k not in ("uid", "resourceVersion")}})
        raw["metadata"]["resourceVersion"] = str(next(_versions))
        raw["metadata"]["generation"] += 1
        return copy.deepcopy(self.put(resource, raw))

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", version: str = ""
    ) -> None:
        self._begin("delete", resource, name)
        stored = self._stored(resource, name)["metadata"]
        if uid and stored["uid"] != uid:
            raise ConflictError(409, "Conflict", "another uid")
        if version and stored["resourceVersion"] != version:
            raise ConflictError(409, "Conflict", "the resourceVersion in the precondition does not match")
        del self.objects[resource.plural, name]

    async def request(self, method: str, path: str, *, body: Json, resource: Resource, **_: Any) -> Json:
        asked = body["spec"]["resourceAttributes"]
        self.reviews.append(asked)
        return {"status": {"allowed": not self.denied(asked)}}


def _merge(target: Json, change: Json) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _apply(raw: Json, operation: Json) -> None:
    *way, last = operation["path"].strip("/").split("/")
    place: Any = raw
    for step in way:
        place = place[step]
    match operation["op"]:
        case "test" if place.get(last) != operation["value"]:
            raise InvalidError(422, "Invalid", "the server rejected our request due to an error in our request")
        case "add" if last == "-":
            if operation["value"] in place:
                raise InvalidError(422, "Invalid", "Duplicate value")
            place.append(operation["value"])
        case "add" | "replace":
            place[last] = operation["value"]


class Bench:
    """A frontend's objects over :class:`Kube`."""

    def __init__(
        self, service: str = "", *, file_urls: AllowedUrls = NO_URLS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self.kube = Kube()
        self.objects = Objects(
            cast(KubeClient, self.kube),
            NAMESPACE,
            service,
            file_urls=file_urls,
            clock=lambda: 1767225610.0,
            wait_seconds=wait_seconds,
        )
        directory = self.objects.view.directory
        self._caches = {
            cache.resource.plural: cache
            for cache in (directory.workers, directory.pools, directory.services, *self.objects.view.caches)
        }

    def put(self, resource: Resource, *raw: Json) -> None:
        """Store objects and learn them."""
        for item in raw:
            self._caches[resource.plural].learn(self.kube.put(resource, item))

    def fill(self, *, services: Iterator[Json] | None = None) -> Bench:
        """Store one service, one pool of it, and one site."""
        self.put(names.SIMULATION_SERVICES, *(services or [service()]))
        self.put(names.WORKER_POOLS, pool())
        self.put(names.CLOUD_SITES, site())
        return self

    def forget(self, resource: Resource, name: str) -> None:
        """Delete an object behind the frontend's back."""
        cache: Any = self._caches[resource.plural]
        self.kube.objects.pop((resource.plural, name))
        cache.forget(cache.get("" if not resource.namespaced else NAMESPACE, name))

    def forget_reviews(self) -> None:
        """Forget the reviews of rights, as after ten seconds."""
        self.objects._access = Access(cast(KubeClient, self.kube), self.objects.view)

    def stored(self, resource: Resource) -> dict[str, Json]:
        return {name: raw for (plural, name), raw in self.kube.objects.items() if plural == resource.plural}

    def entity(self, path: str) -> Entity:
        found = self.objects.get_entity(path)
        assert found is not None, f"there is {path}"
        return found

    def beside(self, *more: Resource, wait_seconds: float = WAIT_SECONDS) -> Bench:
        """Return another frontend of the same objects that knows the service, its pool, the site and ``more`` kinds."""
        other = Bench(wait_seconds=wait_seconds)
        other.kube.objects = self.kube.objects
        for resource in (names.SIMULATION_SERVICES, names.WORKER_POOLS, names.CLOUD_SITES, *more):
            for raw in self.stored(resource).values():
                other.hear(resource, raw)
        return other

    def hear(self, resource: Resource, *raw: Json) -> None:
        """Learn objects as they were at some time."""
        for item in raw:
            self._caches[resource.plural].learn(copy.deepcopy(item))

    async def ask(
        self, method: str, target: str, body: str | bytes = b"", *, key: str = "", **headers: str
    ) -> Response:
        """Send a whole request of Ada; header names have ``_`` for ``-``."""
        path, query = parse_target(target, "target")
        sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
        data = body.encode() if isinstance(body, str) else body
        return await Handlers(self.objects).handle(OcciRequest(method, path, query, sent, data, ADA, BASE, key))

    async def create(self, *mixins: str, kind: str = COMPUTE, key: str = "", **attributes: Any) -> Entity:
        """Create as the handlers do; ``__`` in the names of attributes stands for a dot."""
        given = {name.replace("__", "."): value for name, value in attributes.items()}
        draft = check_creation(Draft(kind, mixins, given), self.objects.get_model())
        return await self.objects.create(ADA, draft, key=key)
