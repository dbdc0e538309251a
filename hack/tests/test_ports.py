# SPDX-License-Identifier: Apache-2.0
import socket
from pathlib import Path

import pytest

from simyard_dev.ports import LOOPBACK, Ports, is_listening

pytestmark = pytest.mark.slow


def test_a_port_is_remembered(tmp_path: Path) -> None:
    port = Ports(tmp_path).reserve("api")
    assert Ports(tmp_path).reserve("api") == Ports(tmp_path)["api"] == port


def test_two_names_have_two_ports(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    assert ports.reserve("one") != ports.reserve("two")


def test_a_port_that_was_taken_since_is_replaced(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    taken = ports.reserve("api")
    with socket.create_server((LOOPBACK, taken)):
        assert is_listening(taken)
        assert ports.reserve("api") != taken
    assert not is_listening(taken)
