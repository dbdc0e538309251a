"""What a pool needs: its workers, its status, and that it always comes to rest where it should."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_pool, make_service, make_site, make_worker, not_ready

from simyard.api.base import find_condition
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan import pool as planning
from simyard.plan.backoff import Backoff
from simyard.plan.pool import PoolInput, PoolPlan, plan_pool
from simyard.plan.worker import is_ready

SERVICE = make_service()
SITES = {"a": make_site("a")}


def given_pool(pool: WorkerPool, workers: list[Worker] | None = None, now: datetime = NOW, **more: Any) -> PoolInput:
    fields = {"previous": pool.status, "backoff": Backoff(), "service": SERVICE, "sites": SITES, **more}
    return PoolInput(pool=pool, workers=workers or [], now=now, **fields)


def available(plan: PoolPlan) -> tuple[str, str, str]:
    condition = find_condition(plan.status.conditions, "Available")
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_a_new_pool_gets_its_workers_at_once() -> None:
    plan = plan_pool(given_pool(make_pool(3)))
    assert [(new.name, new.site) for new in plan.create] == [("pool-0", "a"), ("pool-1", "a"), ("pool-2", "a")]
    assert available(plan)[:2] == ("False", "WorkersStarting")
    assert plan.urgent
    assert plan.status.start is not None


def test_a_large_pool_is_made_in_several_passes() -> None:
    plan = plan_pool(given_pool(make_pool(planning.MOST_CREATES + 1)))
    assert len(plan.create) == planning.MOST_CREATES
    assert plan.wake_seconds == 0


def test_names_that_belong_to_somebody_else_are_passed_over() -> None:
    plan = plan_pool(given_pool(make_pool(2), taken=frozenset({"pool-0"})))
    assert [new.name for new in plan.create] == ["pool-1", "pool-2"]


def test_what_stands_in_the_way_is_told_but_does_not_end_what_runs() -> None:
    pool = make_pool(1, attributes={"load": -1})
    running = [made_ready(make_worker(), at(1))]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"service": None}, "ServiceNotFound"),
        ({"service": replace(SERVICE, problem="is wrong")}, "InterfaceInvalid"),
        ({}, "AttributesInvalid"),
        ({"pool": make_pool(1), "sites": {}}, "NoSiteAvailable"),
        ({"pool": make_pool(1, placement={"sites": ["b"]})}, "SiteNotFound"),
        ({"pool": make_pool(1), "sites": {"a": make_site("a", limits={"maxWorkers": 0})}}, "NoSiteAvailable"),
        ({"pool": make_pool(1), "broker": False}, "BrokerUnreachable"),
    ]
    for changes, reason in cases:
        plan = plan_pool(replace(given_pool(pool), **changes))
        assert (plan.create, available(plan)[1]) == ((), reason)
        assert available(plan_pool(replace(given_pool(pool, running), **changes)))[0] == "True"


def test_a_full_site_takes_what_fits_and_says_so() -> None:
    plan = plan_pool(given_pool(make_pool(3), sites={"a": make_site("a", limits={"maxWorkers": 2})}))
    assert len(plan.create) == 2
    assert available(plan)[1] == "MaxWorkersReached"


def test_a_failed_worker_is_replaced_and_remembered() -> None:
    failed = not_ready(make_worker("pool-1"), "MachineFailed", at(1), "no host")
    plan = plan_pool(given_pool(make_pool(2), [made_ready(make_worker("pool-0"), at(1)), failed], now=at(5)))
    assert [(removal.worker, removal.failed) for removal in plan.delete] == [(failed, True)]
    (entry,) = plan.status.failures
    assert (entry.worker, entry.reason, entry.message, entry.time) == ("pool-1", "MachineFailed", "no host", at(5))
    assert plan.status.failed_replicas == 1
    assert "pool-1" not in [new.name for new in plan.create], "its name is free only when it is gone"


def test_workers_that_keep_failing_are_made_ever_more_slowly() -> None:
    pool = make_pool(1, start={"deadlineSeconds": 600})
    backoff = Backoff(rounds=4, until=at(10))
    plan = plan_pool(given_pool(pool, now=at(5), backoff=backoff))
    assert plan.create == ()
    assert plan.wake_seconds == 5
    assert "keep failing" in available(plan)[2]
    assert len(plan_pool(given_pool(pool, now=at(10), backoff=backoff)).create) == 1


def test_ready_workers_drain_before_they_are_ended() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(3)] + [make_worker("pool-3")]
    plan = plan_pool(given_pool(make_pool(2), workers, now=at(5)))
    assert [worker.metadata.name for worker in plan.drain] == ["pool-2"]
    assert [removal.worker.metadata.name for removal in plan.delete] == ["pool-3"]
    draining = not_ready(make_worker("pool-2", spec={"drain": True}), "Draining", at(5))
    later = given_pool(make_pool(2), [*workers[:2], draining], now=at(6))
    assert plan_pool(later).wake_seconds == 29
    assert [removal.worker for removal in plan_pool(replace(later, now=at(35))).delete] == [draining]


def test_a_suspended_pool_keeps_its_replicas_in_mind() -> None:
    workers = [make_worker(f"pool-{slot}") for slot in range(2)]
    plan = plan_pool(given_pool(make_pool(2, suspend=True), workers))
    assert len(plan.delete) == 2
    assert available(plan)[1] == "Suspended"


def test_a_deleted_pool_deletes_all_its_workers_without_delay() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(2)]
    plan = plan_pool(given_pool(make_pool(2, deleted=True), workers))
    assert (len(plan.delete), plan.drain, plan.create) == (2, (), ())
    assert available(plan)[:2] == ("False", "Terminating")


@dataclass
class World:
    """A pool in the hands of plans: what they say is carried out, time passes, and workers come up or fail."""

    pool: WorkerPool
    workers: dict[str, Worker] = field(default_factory=dict)
    now: datetime = NOW
    backoff: Backoff = field(default_factory=Backoff)

    def given(self) -> PoolInput:
        return given_pool(self.pool, list(self.workers.values()), self.now, backoff=self.backoff)

    def carry_out(self, plan: PoolPlan) -> None:
        """As the API server does it: a name is taken once, and only the very object that was meant is deleted."""
        for removal in plan.delete:
            name = removal.worker.metadata.name
            if name in self.workers and self.workers[name].metadata.uid == removal.worker.metadata.uid:
                del self.workers[name]
        for worker in plan.drain:
            name = worker.metadata.name
            if name in self.workers and self.workers[name].metadata.uid == worker.metadata.uid:
                spec = worker.spec.model_copy(update={"drain": True})
                self.workers[name] = not_ready(worker.model_copy(update={"spec": spec}), "Draining", self.now)
        for new in plan.create:
            self.workers.setdefault(new.name, make_worker(new.name, site=new.site, requested=self.now))
        self.backoff = plan.backoff
        self.pool = self.pool.model_copy(update={"status": plan.status})

    def scale(self, replicas: int) -> None:
        metadata = self.pool.metadata.model_copy(update={"generation": self.pool.metadata.generation + 1})
        spec = self.pool.spec.model_copy(update={"replicas": replicas})
        self.pool = self.pool.model_copy(update={"metadata": metadata, "spec": spec})

    def set(self, slot: int, how: str) -> None:
        names = sorted(self.workers)
        if not names:
            return
        name = names[slot % len(names)]
        worker = self.workers[name]
        if how == "gone":
            del self.workers[name]
        elif how == "ready" and not worker.spec.drain:
            self.workers[name] = made_ready(worker, self.now)
        elif how == "failed":
            self.workers[name] = not_ready(worker, "MachineFailed", self.now)

    def serving(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if not worker.spec.drain]

    def settle(self) -> None:
        """All that can come up does, and time passes, until there is nothing left to do."""
        for _ in range(60):
            plan = plan_pool(self.given())
            self.carry_out(plan)
            for name, worker in list(self.workers.items()):
                if not worker.spec.drain and not is_ready(worker):
                    self.workers[name] = made_ready(worker, self.now)
            self.now += timedelta(seconds=max(1.0, plan.wake_seconds or 0))


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 400)),
        st.tuples(st.sampled_from(["ready", "failed", "gone"]), st.integers(0, 20)),
        st.tuples(st.just("scale"), st.integers(0, 12)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("stale"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 12), EVENTS)
def test_whatever_happens_there_are_never_too_many_and_in_the_end_just_enough(
    replicas: int, events: list[tuple[str, int]]
) -> None:
    world = World(make_pool(replicas))
    stale = world.given()
    for what, number in events:
        if what == "pass":
            world.now += timedelta(seconds=number)
            before = len(world.serving())
            stale, plan = world.given(), plan_pool(world.given())
            assert plan == plan_pool(world.given()), "the same input gives the same plan"
            names = [new.name for new in plan.create]
            assert len(set(names)) == len(names)
            assert not set(names) & set(world.workers)
            world.carry_out(plan)
            assert len(world.serving()) <= max(before, world.pool.spec.replicas)
        elif what == "scale":
            world.scale(number)
        elif what == "restart":
            world.backoff = Backoff()
        elif what == "stale":
            world.carry_out(plan_pool(replace(stale, pool=world.pool, now=world.now)))
        else:
            world.set(number, what)
    world.settle()
    assert len(world.workers) == world.pool.spec.replicas
    assert all(map(is_ready, world.workers.values()))
    plan = plan_pool(world.given())
    assert (plan.create, plan.drain, plan.delete) == ((), (), ())
    assert plan.status.ready_replicas == world.pool.spec.replicas
    assert plan.status == world.pool.status, "a pool at rest costs no writes"


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10), st.lists(st.sampled_from(["first", "second", "both see"]), max_size=20))
def test_two_planners_with_stale_views_never_make_one_too_many(replicas: int, turns: list[str]) -> None:
    world = World(make_pool(replicas))
    views = {"first": world.given(), "second": world.given()}
    for turn in turns:
        if turn == "both see":
            views = {name: world.given() for name in views}
        else:
            world.carry_out(plan_pool(views[turn]))
        assert len(world.workers) <= replicas
