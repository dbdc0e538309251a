"""Timelines of pool starts, as data, text and SVG."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from simyard.api.base import LocalReference, Metadata
from simyard.api.worker import Stages, Worker, WorkerSpec, WorkerStatus
from simyard.api.worker_pool import PoolStart, WorkerPool, WorkerPoolSpec, WorkerPoolStatus
from simyard.cli.timeline import Timeline, timeline_of, to_json, to_svg, to_text

T0 = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def worker(name: str, *seconds: float) -> Worker:
    stages = dict(
        zip(
            ("start", "pending", "prolog", "boot", "running", "registered"),
            (T0 + timedelta(seconds=second) for second in seconds),
            strict=False,
        )
    )
    return Worker(
        metadata=Metadata(name=name, namespace="default", creation_timestamp=T0 + timedelta(seconds=seconds[0])),
        spec=WorkerSpec(service_ref=LocalReference(name="beam"), site="local"),
        status=WorkerStatus(stages=Stages(**stages)),
    )


def pool(start: PoolStart | None) -> WorkerPool:
    return WorkerPool(
        metadata=Metadata(name="beams", namespace="default"),
        spec=WorkerPoolSpec(service_ref=LocalReference(name="beam"), replicas=2),
        status=WorkerPoolStatus(start=start),
    )


@pytest.fixture
def timeline() -> Timeline:
    start = PoolStart(requested_time=T0, workers=2, boot_milliseconds=4000, registered_milliseconds=5000)
    workers = [
        worker("beams-1", 0, 0.5, 1, 2, 4, 5),
        worker("beams-0", 0, 0.5, 1, 2, 3, 3.5),
        worker("beams-9", -3600, -3599),
    ]
    found = timeline_of(pool(start), workers)
    assert found is not None
    return found


def test_a_pool_that_never_started_has_no_timeline() -> None:
    assert timeline_of(pool(None), [worker("beams-0", 0)]) is None


def test_workers_stand_in_the_order_in_which_they_were_ready_and_older_ones_are_left_out(timeline: Timeline) -> None:
    assert [line.name for line in timeline.lines] == ["beams-0", "beams-1"]
    assert timeline.lines[1].entered["registered"] == 5.0


def test_data_has_the_medians_of_each_stage(timeline: Timeline) -> None:
    data = to_json(timeline)
    assert data["stages"]["boot->running"] == 1.5
    assert (data["tBootSeconds"], data["tRSeconds"]) == (4.0, 5.0)


def test_text_draws_each_stage_in_proportion(timeline: Timeline) -> None:
    bar = to_text(timeline).splitlines()[3].split("|")[1]
    assert (bar.count("."), bar.count(":"), bar.count("-"), bar.count("="), bar.count("#")) == (6, 6, 12, 24, 12)


def test_text_shows_a_sample_of_many_workers() -> None:
    start = PoolStart(requested_time=T0, workers=500)
    many = timeline_of(pool(start), [worker(f"beams-{n}", 0, 1, 2, 3, 4, 5 + n) for n in range(500)])
    assert many is not None
    text = to_text(many, most=10)
    assert "(10 of 500 workers shown)" in text
    assert "beams-499" in text
    assert "T_boot not reached" in text


def test_svg_has_a_rectangle_per_stage_and_worker(timeline: Timeline) -> None:
    root = ElementTree.fromstring(to_svg(timeline))
    titles = [item.text for item in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles.count("beams-0") == titles.count("beams-1") == 5
