# SPDX-License-Identifier: Apache-2.0
"""Timelines of pool starts: as data, text and pictures, and the command that shows them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from simyard.api.base import LocalReference, Metadata
from simyard.api.worker import Stages, Worker, WorkerSpec, WorkerStatus
from simyard.api.worker_pool import PoolStart, WorkerPool, WorkerPoolSpec, WorkerPoolStatus
from simyard.cli.app import cli
from simyard.cli.timeline import STAGES, Timeline, WorkerLine, build_timeline, to_json, to_text
from simyard.cli.timeline_picture import to_picture

T0 = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def worker(name: str, *seconds: float) -> Worker:
    stages = dict(zip(STAGES, (T0 + timedelta(seconds=second) for second in seconds), strict=False))
    return Worker(
        metadata=Metadata(name=name, namespace="default", creation_timestamp=T0 + timedelta(seconds=seconds[0])),
        spec=WorkerSpec(service_ref=LocalReference(name="beam"), site="local"),
        status=WorkerStatus(stages=Stages(**stages)),
    )


def pool(start: PoolStart | None) -> WorkerPool:
    return WorkerPool(
        metadata=Metadata(name="beams", namespace="default", resource_version="7"),
        spec=WorkerPoolSpec(service_ref=LocalReference(name="beam"), replicas=2),
        status=WorkerPoolStatus(start=start),
    )


@pytest.fixture
def timeline() -> Timeline:
    start = PoolStart(
        requested_time=T0,
        workers=2,
        boot_milliseconds=4000,
        registered_milliseconds=5000,
        published_milliseconds=5040,
    )
    workers = [
        worker("beams-1", 0, 0.5, 1, 2, 4, 5),
        worker("beams-0", 0, 0.5, 1, 2, 3, 3.5),
        worker("beams-9", -3600, -3599),
        worker("beams-2", 3600, 3601, 3602, 3603, 3604, 3605),
    ]
    found = build_timeline(pool(start), workers)
    assert found is not None
    return found


def test_a_worker_that_was_replaced_after_the_start_is_counted_and_does_not_stretch_it(timeline: Timeline) -> None:
    assert [line.name for line in timeline.lines] == ["beams-0", "beams-1"]
    assert (timeline.end, timeline.replaced) == (5, 1)
    assert "(1 worker was replaced after the start)" in to_text(timeline)


def test_a_pool_that_never_started_has_no_timeline() -> None:
    assert build_timeline(pool(None), [worker("beams-0", 0)]) is None


def test_workers_stand_in_the_order_in_which_they_were_ready_and_older_ones_are_left_out(timeline: Timeline) -> None:
    assert [line.name for line in timeline.lines] == ["beams-0", "beams-1"]
    assert timeline.lines[1].entered["registered"] == 5.0


def test_data_has_the_medians_of_each_stage(timeline: Timeline) -> None:
    data = to_json(timeline)
    assert data["stages"]["boot->running"] == 1.5
    assert (data["tBootSeconds"], data["tRSeconds"], data["tMSeconds"]) == (4.0, 5.0, 5.04)
    assert data["emulatedSites"] == []


def test_text_draws_each_stage_in_proportion(timeline: Timeline) -> None:
    bar = to_text(timeline).splitlines()[3].split("|")[1]
    assert (bar.count("."), bar.count(":"), bar.count("-"), bar.count("="), bar.count("#")) == (6, 6, 12, 24, 12)


def test_text_shows_a_sample_of_many_workers() -> None:
    start = PoolStart(requested_time=T0, workers=500)
    many = build_timeline(pool(start), [worker(f"beams-{n}", 0, 1, 2, 3, 4, 5 + n) for n in range(500)])
    assert many is not None
    text = to_text(many, max_lines=10)
    assert "(10 of 500 workers shown)" in text
    assert "beams-499" in text
    assert "T_boot not known yet" in text


def large(workers: int, sites: int = 1) -> Timeline:
    """Return the timeline of a start on a cloud that places a number of machines per second."""
    choose = random.Random(workers)
    lines = []
    for index in range(workers):
        time, entered = 0.0, {"start": 0.0}
        for stage in STAGES[1:]:
            time += choose.gammavariate(4, 0.2) + (index / 200 if stage == "prolog" else 0)
            entered[stage] = time
        lines.append(WorkerLine(f"beams-{index}", f"site-{index % sites}", entered))
    end = max(line.end for line in lines)
    figures = {"T_boot": end - 0.01, "T_r": end, "T_m": end + 0.01}
    return Timeline("beams", T0, lines, figures, frozenset({"site-0"}))


@pytest.mark.parametrize("workers", [1, 40, 512, 10_000])
def test_an_svg_of_any_number_of_workers_is_small_and_well_formed(workers: int) -> None:
    picture = to_picture(large(workers), "svg")
    assert len(picture) < 300_000
    texts = ["".join(item.itertext()) for item in ElementTree.fromstring(picture).iter() if item.tag.endswith("}text")]
    noun = "worker" if workers == 1 else "workers"
    assert f"Start of beams: {workers:,} {noun} (emulated)" in texts
    assert [text.split()[0] for text in texts if text.startswith("T_")] == ["T_boot", "T_r", "T_m"]
    assert {"start → pending", "running → registered", "seconds since the request"} <= set(texts)
    assert ("beams-0" in texts) == (workers <= 40)


def test_labels_of_figures_that_are_close_together_stand_on_levels_of_their_own() -> None:
    tree = ElementTree.fromstring(to_picture(large(10), "svg"))
    heights = {item.get("y") for item in tree.iter() if (item.text or "").startswith("T_")}
    assert len(heights) == 3
    assert None not in heights


def test_several_sites_are_told_apart_and_only_those_that_are_emulated_are_called_so() -> None:
    picture = to_picture(large(30, sites=3), "svg").decode()
    assert "10 of them emulated" in picture
    assert ("site-0 (emulated)" in picture, "site-1 (emulated)" in picture) == (True, False)


def test_the_same_timeline_gives_the_same_file(timeline: Timeline) -> None:
    assert to_picture(timeline, "svg") == to_picture(timeline, "svg")


def test_a_png_is_a_png(timeline: Timeline) -> None:
    assert to_picture(timeline, "png").startswith(b"\x89PNG")


def test_a_start_of_which_nothing_is_known_yet_can_be_drawn() -> None:
    found = build_timeline(pool(PoolStart(requested_time=T0, workers=1)), [worker("beams-0", 0)])
    assert found is not None
    assert to_picture(found, "svg")


def test_without_matplotlib_the_error_says_what_to_install(timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(click.ClickException, match=r"pip install 'simyard\[plot\]'"):
        to_picture(timeline, "png")


def test_the_command_line_starts_without_matplotlib() -> None:
    program = "import sys, simyard.cli.app; sys.exit('matplotlib' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=240, check=False).returncode == 0


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of answers, which a script in place of kubectl prints: objects, lists, a watch."""
    program = tmp_path / "kubectl"
    program.write_text(f"""#!{sys.executable}
import sys, pathlib
words, here = sys.argv[1:], pathlib.Path({str(tmp_path)!r})
if words[0] == "config":
    sys.exit(0)
plural = words[1].split(".")[0]
name = "watch" if "--raw" in words else plural if words[2].startswith("-") else "pool"
file = here / (name + ".json")
if not file.exists():
    sys.exit("Error from server (NotFound): no pool" if name == "pool" else "Error from server (Forbidden): " + plural)
print(file.read_text())
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def answers(directory: Path, *starts: PoolStart) -> None:
    """Write the answers of kubectl: the pool after the last of the starts, and a watch with an event for each start."""
    pools = [
        {**pool(start).model_dump(mode="json", by_alias=True, exclude_none=True), "kind": "WorkerPool"}
        for start in starts
    ]
    for version, item in enumerate(pools, 1):
        item["metadata"]["resourceVersion"] = str(version)
    workers = [worker("beams-0", 0, 0.5, 1, 2, 3, 3.5).model_dump(mode="json", by_alias=True, exclude_none=True)]
    (directory / "pool.json").write_text(json.dumps(pools[-1]))
    (directory / "workers.json").write_text(json.dumps({"items": workers}))
    events = [json.dumps({"type": "MODIFIED", "object": item}) for item in pools]
    events.append(json.dumps({"type": "DELETED", "object": pools[-1]}))
    (directory / "watch.json").write_text("\n".join(events))


ASKED = PoolStart(requested_time=T0, workers=1)
REGISTERED = ASKED.model_copy(update={"boot_milliseconds": 3000, "registered_milliseconds": 3500})
PUBLISHED = REGISTERED.model_copy(update={"published_milliseconds": 3540})


def test_who_may_not_see_sites_gets_the_timeline_all_the_same(kubectl: Path) -> None:
    answers(kubectl, PUBLISHED)
    done = CliRunner().invoke(cli, ["timeline", "beams"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].startswith("Start of beams: 1 worker, at")
    assert done.output.splitlines()[-1] == "T_boot 3.000 s, T_r 3.500 s, T_m 3.540 s"


def test_text_may_be_asked_for_by_name(kubectl: Path) -> None:
    answers(kubectl, PUBLISHED)
    texts = [CliRunner().invoke(cli, ["timeline", "beams", *more]).output for more in ([], ["-o", "text"])]
    assert texts[0] == texts[1]
    assert CliRunner().invoke(cli, ["timeline", "beams", "--watch", "-o", "text"]).exit_code == 0


def test_a_watch_ends_when_the_start_is_complete_and_skips_what_is_drawn_already(kubectl: Path) -> None:
    answers(kubectl, ASKED, REGISTERED, PUBLISHED)
    done = CliRunner().invoke(cli, ["timeline", "beams", "--watch"])
    assert done.exit_code == 0, done.output
    assert done.output.count("Start of beams") == 1


def test_a_watch_of_a_start_that_was_over_before_does_not_wait_for_what_nobody_knows(kubectl: Path) -> None:
    answers(kubectl, REGISTERED)
    done = CliRunner().invoke(cli, ["timeline", "beams", "--watch"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].endswith("T_m not known yet")


def test_a_watch_whose_pool_goes_away_fails(kubectl: Path) -> None:
    answers(kubectl, ASKED)
    done = CliRunner().invoke(cli, ["timeline", "beams", "--watch"])
    assert done.exit_code == 1
    assert "the watch ended: pool beams was deleted" in done.output


def test_a_watch_of_a_pool_that_does_not_exist_fails_as_kubectl_does(kubectl: Path) -> None:
    done = CliRunner().invoke(cli, ["timeline", "beams", "--watch"])
    assert (done.exit_code, done.output) == (1, "Error from server (NotFound): no pool\n")


@pytest.mark.parametrize("arguments", [["service/x"], ["beams", "--watch", "-o", "svg"], ["beams", "-o", "gif"]])
def test_what_cannot_be_shown_is_refused_as_wrong_usage(kubectl: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["timeline", *arguments]).exit_code == 2
