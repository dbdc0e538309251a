# SPDX-License-Identifier: Apache-2.0
"""The files for hosts and editors are valid, and name only existing targets and folders."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import guides

FOLDER = guides.ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+")
Workflow = dict[Any, Any]


def load(path: Path) -> Workflow:
    loaded: Workflow = yaml.safe_load(path.read_text())
    return loaded


def make_targets() -> set[str]:
    makefile = (guides.ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))


def steps(workflow: Workflow) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def asked_targets(command: str) -> set[str]:
    """Return the targets of a make command; fail for any other command."""
    words = shlex.split(command)
    assert words[0] == "make", f"workflows call make alone: {command}"
    return {word for word in words[1:] if "=" not in word}


def test_there_are_workflows() -> None:
    assert {path.stem for path in WORKFLOWS} >= {"lint", "fast-tests", "tests", "chart", "image", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_exist(path: Path) -> None:
    commands = [line for step in steps(load(path)) if "run" in step for line in step["run"].splitlines()]
    assert commands
    for command in commands:
        assert asked_targets(command) <= make_targets(), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_limits_rights_and_time(path: Path) -> None:
    workflow = load(path)
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [name for name in used if not PINNED.fullmatch(name)] == []
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())
    assert True in workflow  # YAML 1.1 reads the key `on` as true


@pytest.mark.parametrize("path", sorted((FOLDER / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem)
def test_a_form_for_issues_has_distinct_fields(path: Path) -> None:
    form = load(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [item["id"] for item in form["body"] if item["type"] != "markdown"]
    assert fields
    assert len(fields) == len(set(fields))


def test_updates_are_asked_for_folders_that_exist() -> None:
    updates = load(FOLDER / "dependabot.yml")["updates"]
    assert {item["package-ecosystem"] for item in updates} == {"pip", "gomod", "github-actions", "docker"}
    for item in updates:
        for folder in item.get("directories", [item.get("directory")]):
            pattern = folder.strip("/")
            assert not pattern or any(path.is_dir() for path in guides.ROOT.glob(pattern)), f"there is no {folder}"


def test_hooks_call_targets_that_exist_and_the_pinned_ruff() -> None:
    repositories = load(guides.ROOT / ".pre-commit-config.yaml")["repos"]
    revisions = {item["repo"].rpartition("/")[2]: item.get("rev") for item in repositories}
    pinned = re.search(r"^ruff==(\S+)", (guides.ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert pinned
    assert revisions["ruff-pre-commit"] == f"v{pinned[1]}"
    local = [hook for item in repositories if item["repo"] == "local" for hook in item["hooks"]]
    assert local
    for hook in local:
        assert asked_targets(hook["entry"]) <= make_targets()


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "MAINTAINERS.md", "CONTRIBUTING.md"])
def test_links_of_the_public_pages_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (guides.ROOT / name).read_text()):
        assert target.startswith("https://") or (guides.ROOT / target).exists(), f"{name} links to {target}"
