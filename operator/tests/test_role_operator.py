# SPDX-License-Identifier: Apache-2.0
"""The options of ``simyard operator``."""

from __future__ import annotations

from click.testing import CliRunner

from simyard.roles.operator import operator

BROKER = ["--amqp-url=amqp://localhost", "--amqp-management-url=http://localhost"]


def test_pods_of_frontends_that_cannot_be_are_refused_by_field() -> None:
    pod = '{"resources": {"limits": {"memory": "much"}}, "tolerations": [{"efect": "NoExecute"}]}'
    done = CliRunner().invoke(operator, [*BROKER, f"--frontend-pod={pod}"])
    assert done.exit_code == 2
    for said in ("--frontend-pod", "resources.limits.memory: ", "tolerations[0].efect: "):
        assert said in done.output
