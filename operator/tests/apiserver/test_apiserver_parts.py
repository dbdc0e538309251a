# SPDX-License-Identifier: Apache-2.0
"""Parts of the apiserver that need no servers."""

from __future__ import annotations

import asyncio
import time

import pytest
from apiserver_connector import Program
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from simyard.api.base import Json
from simyard.api.names import WORKER_POOLS, WORKERS
from simyard.apiserver.frontproxy import FrontProxy
from simyard.apiserver.routes import VERSION_PATH, parse_route
from simyard.guest.messages import AttributesChanged
from simyard.guest.values import ClaimedAttributes
from simyard.messaging.events import ReceivedEvent
from simyard.serving.attribute_feed import AttributeFeed
from simyard.serving.authorization import TTL_SECONDS, Authorizer, make_review
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Directory
from simyard.serving.identity import Identity
from simyard.serving.objects import CachedWorker
from simyard.serving.status import StatusError
from simyard.serving.values import ValueStore
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import UnavailableError
from simyard_sites.kubernetes.resource import Resource

BASE = f"{VERSION_PATH}/namespaces/lab"
CONFIG_MAP = {
    "data": {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
}
PEER = {"subject": ((("organizationName", "x"),), (("commonName", "front-proxy-client"),))}
ADA = Identity("ada", "", ("users",), ())
SOLVE = ResourceCall("create", "lab", WORKERS, "w", ("actions", "solve"))
UPDATE = ResourceCall("update", "lab", WORKER_POOLS, "p", ("attributes", "l"))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", f"{BASE}/workers/w/actions/solve", SOLVE),
        ("PUT", f"{BASE}/workerpools/p/attributes/l", UPDATE),
        ("GET", f"{BASE}/workers/w/", ResourceCall("get", "lab", WORKERS, "w")),
        ("GET", f"{BASE}/workers", None),
        ("GET", f"{BASE}/workers/w/actions/solve/again", None),
        ("GET", f"{BASE}/workers/UPPER/log", None),
        ("GET", f"{BASE}/workers/w/../x", None),
        ("GET", f"{VERSION_PATH}/workers/w/log", None),
        ("GET", "/apis/subresources.simyard.dev/v2/namespaces/lab/workers/w/log", None),
        ("GET", "/", None),
    ],
)  # fmt: skip
def test_a_path_is_a_call_or_nothing(method: str, path: str, expected: ResourceCall | None) -> None:
    assert parse_route(method, path) == expected


@given(st.text(), st.lists(st.text(alphabet="az09-._/%A", max_size=8), max_size=6))
def test_what_is_a_call_is_what_kube_apiserver_reads_in_the_path(prefix: str, words: list[str]) -> None:
    for path in (prefix, f"{BASE}/workers/{'/'.join(words)}"):
        route = parse_route("GET", path)
        if isinstance(route, ResourceCall):
            rebuilt = f"{VERSION_PATH}/namespaces/{route.namespace}/{route.resource.plural}/{route.name}"
            assert path.rstrip("/") == "/".join([rebuilt, *route.path])
            assert route.subresource == "/".join(route.path)


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_all_that_kube_apiserver_says_of_a_user_reaches_the_access_review() -> None:
    identity = FrontProxy.from_config_map(CONFIG_MAP).read_identity(
        PEER,
        headers(
            ("X-Remote-User", "ada"),
            ("X-Remote-Group", "users"),
            ("x-remote-group", "system:authenticated"),
            ("X-Remote-Extra-Example.com%2fScope", "one"),
            ("X-Remote-Extra-example.com%2fscope", "two"),
        ),
    )
    assert identity is not None
    spec = make_review(identity, SOLVE)["spec"]
    assert (spec["user"], spec["groups"]) == ("ada", ["users", "system:authenticated"])
    assert spec["extra"] == {"example.com/scope": ["one", "two"]}
    assert spec["resourceAttributes"]["subresource"] == "actions/solve"


@pytest.mark.parametrize("data", [{}, {"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": "x"}])
def test_a_config_map_that_says_nothing_usable_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="requestheader-"):
        FrontProxy.from_config_map({"data": data})


class Reviews(KubeClient):
    """A Kubernetes client that answers access reviews when the test permits it."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = True
        self.down = False
        self.answer = asyncio.Event()

    async def request(self, method: str, path: str, *, resource: Resource | None = None, **_: object) -> dict:  # type: ignore[override, type-arg]
        self.asked += 1
        await self.answer.wait()
        if self.down:
            raise UnavailableError(0, "", "connection refused")
        return {"status": {"allowed": self.allowed, "reason": "because"}}


async def test_the_same_question_is_asked_once_at_a_time_and_again_when_the_answer_is_old() -> None:
    now = 0.0
    reviews = Reviews()
    authorizer = Authorizer(reviews, clock=lambda: now)
    checks = [asyncio.create_task(authorizer.check(ADA, SOLVE)) for _ in range(3)]
    await asyncio.sleep(0)
    checks[0].cancel()
    reviews.answer.set()
    await asyncio.gather(*checks[1:])
    await authorizer.check(ADA, SOLVE)
    assert reviews.asked == 1
    now, reviews.allowed = TTL_SECONDS, False
    with pytest.raises(StatusError, match=r'"ada" cannot create resource "workers/actions/solve".*because'):
        await authorizer.check(ADA, SOLVE)
    assert reviews.asked == 2


async def test_while_nobody_can_say_nothing_is_permitted_and_nothing_remembered() -> None:
    reviews = Reviews()
    reviews.down = True
    reviews.answer.set()
    authorizer = Authorizer(reviews)
    with pytest.raises(StatusError) as refused:
        await authorizer.check(ADA, SOLVE)
    assert refused.value.code == 503
    reviews.down = False
    await authorizer.check(ADA, SOLVE)


def worker_of_pool(uid: str, pool_uid: str, *, ready: bool = True) -> Json:
    owner = {"kind": "WorkerPool", "name": pool_uid, "uid": pool_uid, "controller": True, "apiVersion": "x"}
    metadata = {"name": uid, "namespace": "lab", "uid": uid, "resourceVersion": "1", "ownerReferences": [owner]}
    condition = {"type": "Ready", "status": str(ready), "reason": "x"}
    spec = {"serviceRef": {"name": "s"}, "site": "site"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [condition]}}


def object_of_service(name: str, spec: Json) -> Json:
    return {"metadata": {"name": name, "namespace": "lab", "uid": name, "resourceVersion": "1"}, "spec": spec}


@pytest.fixture
def directory() -> Directory:
    """Return a directory with a service ``s``, a pool ``p`` with ready workers, and a pool ``q`` without."""
    directory = Directory(Reviews())
    directory.services.learn(object_of_service("s", {"interface": Program.interface.to_json()}))
    for pool, ready in (("p", True), ("q", False)):
        directory.pools.learn(object_of_service(pool, {"serviceRef": {"name": "s"}}))
        directory.workers.learn(worker_of_pool(f"{pool}-0", pool, ready=ready))
    return directory


def test_a_service_is_called_where_workers_are_ready(directory: Directory) -> None:
    service = directory.services.get("lab", "s")
    assert service is not None
    assert {directory.choose_destination(service).queue for _ in range(20)} == {"simyard.pool.pool-p"}


async def test_nobody_tells_the_attributes_of_another_pools_workers(directory: Directory) -> None:
    store = ValueStore()
    feed = AttributeFeed(directory, store)
    worker = directory.find_worker_by_uid("p-0")
    assert worker is not None
    for user, state in (("pool-p", "idle"), ("pool-q", "forged")):
        message = AttributesChanged(ClaimedAttributes({"state": state}))
        feed.apply_event(ReceivedEvent(user, "p-0", message, time.time()))
    assert store.get_values(worker)["state"].value == "idle"
    directory.workers.forget(worker)
    assert "state" not in store.get_values(worker)


def test_the_newest_of_message_and_status_is_shown() -> None:
    def worker(observed: str) -> CachedWorker:
        return CachedWorker.parse(
            {
                "metadata": {"name": "w", "uid": "u"},
                "spec": {"serviceRef": {"name": "s"}, "site": "site"},
                "status": {"attributes": {"state": "from status"}, "attributesTime": observed},
            }
        )

    store = ValueStore()
    told = ClaimedAttributes({"state": "from message", "undeclared": 1})
    store.record(worker("2001-01-01T00:00:00Z"), told, Program.interface, time=1_000_000_000.0)
    assert store.get_values(worker("2001-01-01T00:00:00Z"))["state"].value == "from message"
    assert store.get_values(worker("2002-01-01T00:00:00Z"))["state"].value == "from status"
    assert "undeclared" not in store.get_values(worker("2001-01-01T00:00:00Z"))
    store.forget("u")
    assert store.get_values(worker("2001-01-01T00:00:00Z"))["state"].value == "from status"
