# SPDX-License-Identifier: Apache-2.0
"""Connector classes: what they declare, and what the adapter makes of them."""

import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter import Connector, Context, action, attribute, parameter
from simyard_adapter.backend import BackendEnvironment
from simyard_adapter.declarations import Interface, InvalidValueError
from simyard_adapter.errors import StartError
from simyard_adapter.loading import write_files
from simyard_adapter.python_backend import PythonBackend, find_differences, load_class


class Beam(Connector):
    state = attribute("string", default="idle", enum=("idle", "running"), description="what it does")
    solved = attribute("integer", minimum=0)

    @action(
        parameters=[parameter("length", "number", unit="mm", minimum=1, default=1000), parameter("note", "string")],
        result=[parameter("max", "number", unit="mm")],
        timeout_seconds=300,
        idempotent=True,
    )
    def solve(self, context: Context, *, length: float, note: str = "") -> dict[str, Any]:
        """Solve it.

        At length.
        """
        return {"max": length}


class LongBeam(Beam):
    @action(concurrent=True)
    async def cancel(self, context: Context) -> None:
        """Cancel it."""


def test_a_class_gives_the_interface_of_its_manifest() -> None:
    assert LongBeam.interface.to_json() == {
        "attributes": [
            {
                "name": "state",
                "type": "string",
                "description": "what it does",
                "default": "idle",
                "enum": ["idle", "running"],
            },
            {"name": "solved", "type": "integer", "minimum": 0},
        ],
        "actions": [
            {
                "name": "solve",
                "description": "Solve it.",
                "parameters": [
                    {"name": "length", "type": "number", "unit": "mm", "default": 1000, "minimum": 1},
                    {"name": "note", "type": "string"},
                ],
                "result": [{"name": "max", "type": "number", "unit": "mm"}],
                "mode": "Sync",
                "timeoutSeconds": 300,
                "idempotent": True,
            },
            {
                "name": "cancel",
                "description": "Cancel it.",
                "mode": "Sync",
                "timeoutSeconds": 30,
                "concurrent": True,
            },
        ],
    }
    assert [item.name for item in Beam.interface.actions] == ["solve"]


def test_attributes_are_checked_when_they_are_set_and_belong_to_the_instance() -> None:
    first, second = Beam(), Beam()
    threads = [threading.Thread(target=setattr, args=(first, "solved", 7.0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (first.solved, first.state) == (7, "idle")
    assert second.solved is None
    with pytest.raises(InvalidValueError, match=r'attributes.state: "lost" is not one of "idle", "running"'):
        first.state = "lost"
    with pytest.raises(InvalidValueError, match="at most 65536"):
        Large().text = "x" * 65536


class Large(Connector):
    text = attribute("string")


def test_a_method_that_does_not_take_its_parameters_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"action solve.*'width'"):

        class Wrong(Connector):
            @action(parameters=[parameter("width", "number", default=1)])
            def solve(self, context: Context, *, length: float = 1) -> None: ...

    with pytest.raises(TypeError, match=r"action solve.*missing.*'length'"):

        class Optional(Connector):
            @action(parameters=[parameter("length", "number")])
            def solve(self, context: Context, *, length: float) -> None: ...


def test_a_default_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="default of length"):
        parameter("length", "number", minimum=1, default=0)


def test_differences_between_class_and_manifest_are_named_descriptions_apart() -> None:
    manifest = Interface.from_json(LongBeam.interface.to_json())
    assert find_differences(manifest, LongBeam.interface) == []
    described = Interface.from_json({**manifest.to_json(), "attributes": [
        {**item, "description": "other words"} for item in manifest.to_json()["attributes"]
    ]})  # fmt: skip
    assert find_differences(described, LongBeam.interface) == []
    assert find_differences(manifest, Beam.interface) == ["action cancel is missing in the class"]
    assert find_differences(Beam.interface, LongBeam.interface) == ["action cancel is missing in the manifest"]
    changed = manifest.to_json()
    changed["actions"][0]["timeoutSeconds"] = 60
    (difference,) = find_differences(Interface.from_json(changed), LongBeam.interface)
    assert difference.startswith("action solve is {")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("beam", "must have the form module:Class"),
        ("no_such_module_here:Beam", "ModuleNotFoundError"),
        ("broken_connector:Beam", "ZeroDivisionError"),
        ("json:JSONDecoder", "is not a subclass of simyard_adapter.Connector"),
        ("json:Nothing", "is not a subclass of simyard_adapter.Connector"),
    ],
)
def test_a_class_that_cannot_be_loaded_says_why(tmp_path: Path, reference: str, message: str) -> None:
    (tmp_path / "broken_connector.py").write_text("1 / 0")
    with pytest.raises(StartError, match=message):
        load_class(reference, tmp_path)


def test_in_one_process_each_service_gets_its_own_module_also_when_its_first_directory_is_gone(tmp_path: Path) -> None:
    text = "from simyard_adapter import Connector\nimport twin_helper\nclass Twin(Connector): kind = twin_helper.KIND\n"
    for directory, kind in (("a", 1), ("b", 1), ("c", 2), ("d", 1)):
        write_files({"twin_connector.py": text, "twin_helper.py": f"KIND = {kind}\n"}, tmp_path / directory)

    def load(directory: str) -> type[Connector]:
        return load_class("twin_connector:Twin", tmp_path / directory, ["twin_connector.py", "twin_helper.py"])

    first = load("a")
    assert load("b") is first
    shutil.rmtree(tmp_path / "a")
    other = load("c")
    assert load("d") is first
    assert (first.kind, other.kind) == (1, 2)  # type: ignore[attr-defined]
    write_files({"other_connector.py": text, "twin_helper.py": "KIND = 3\n"}, tmp_path / "e")
    third = load_class("other_connector:Twin", tmp_path / "e", ["other_connector.py", "twin_helper.py"])
    assert third.kind == 3, "a helper of the same name is its own"  # type: ignore[attr-defined]


def test_the_directory_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from simyard_adapter import Connector\nclass Near(Connector): pass\n"
    write_files({"near_connector.py": text}, tmp_path / "near")
    assert load_class("near_connector:Near", Path("near")).__name__ == "Near"


def test_a_connector_named_like_a_module_of_this_process_is_refused(tmp_path: Path) -> None:
    write_files({"shutil.py": "from simyard_adapter import Connector\nclass Twin(Connector): pass\n"}, tmp_path)
    with pytest.raises(StartError, match="another module named shutil"):
        load_class("shutil:Twin", tmp_path)


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", ".", "..", "a\\..\\x", "c:x"])
def test_the_manifests_files_stay_in_their_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(StartError, match="leads out"):
        write_files({path: "x"}, tmp_path / "files")


class Hooked(Beam):
    def start(self) -> None:
        """It may wait for a program."""


async def test_only_the_hooks_that_a_connector_defines_take_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: begun.append(thread) or begin(thread))
    host = BackendEnvironment(tmp_path, logging.LoggerAdapter(logging.getLogger(__name__)), list, {})
    for connector, threads in ((Beam, 0), (Hooked, 1)):
        backend = PythonBackend(connector)
        await backend.start(host)
        await backend.stop()
        assert len(begun) == threads
