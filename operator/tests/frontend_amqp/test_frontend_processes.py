# SPDX-License-Identifier: Apache-2.0
"""Two frontends that `make quickstart` starts, used only through its file of addresses."""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import urllib.request

import pytest
from cloud4e_client import client_of

from simyard_dev.environment import Environment
from simyard_dev.platform import Platform
from simyard_dev.processes import Process

REQUESTS = 300

pytestmark = pytest.mark.xdist_group("quickstart")


@pytest.fixture
def environment(quickstart_environment: Environment) -> Environment:
    return quickstart_environment


@pytest.fixture
def variables(environment: Environment) -> dict[str, str]:
    """Return the variables of a shell that sources the file."""
    script = f"set -a; . {environment.directory / 'env'}; env"
    told = subprocess.run(["env", "-i", "bash", "-c", script], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^(\w+)=(.*)$", told, re.MULTILINE))


def test_both_serve_over_https_who_has_the_token(variables: dict[str, str]) -> None:
    context = ssl.create_default_context(cafile=variables["OCCI_CA_FILE"])
    urls = variables["OCCI_URLS"].split()
    assert urls[0] == variables["OCCI_URL"]
    assert len(set(urls)) == 2
    for url in urls:
        request = urllib.request.Request(f"{url}/-/", headers={"Authorization": f"Bearer {variables['OCCI_TOKEN']}"})
        with urllib.request.urlopen(request, timeout=240, context=context) as answer:
            assert b"Category: compute;" in answer.read()


async def test_a_frontend_that_is_killed_loses_no_request_of_an_amqp_client(
    environment: Environment, variables: dict[str, str]
) -> None:
    frontend = Process(environment.directory / "platform", "frontend-1").identity
    assert frontend is not None
    url, queue, token = (variables[f"OCCI_{name}"] for name in ("AMQP_URL", "AMQP_QUEUE", "TOKEN"))
    async with client_of(url, queue, token) as client:
        sent = set()
        for number in range(REQUESTS):
            sent.add(await client.send("get", "/-/"))
            if number == REQUESTS // 2:
                os.kill(frontend.pid, signal.SIGKILL)
        answered = set()
        while answered != sent:
            answer = await client.answer()
            assert answer.status == 200
            answered.add(answer.correlation_id)
    await asyncio.to_thread(Platform(environment, occi=True).up)  # it comes back
    assert Process(environment.directory / "platform", "frontend-1").is_alive()
