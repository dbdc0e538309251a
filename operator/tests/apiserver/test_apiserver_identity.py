# SPDX-License-Identifier: Apache-2.0
"""Identity and rights of callers."""

from __future__ import annotations

import aiohttp
import pytest
from apiserver_stack import API, Client, Running, Stack, client_of, path_of

from simyard.api.names import WORKERS
from simyard.manifests import rbac
from simyard_dev.certificates import CertificateAuthority, KeyPair

pytestmark = pytest.mark.xdist_group("apiserver")


@pytest.fixture(scope="session")
def front_proxy_ca(stack: Stack) -> CertificateAuthority:
    return CertificateAuthority(stack.control_plane.directory / "keys", "front-proxy-ca")


async def status_for(stack: Stack, certificate: KeyPair | None, path: str, user: str) -> int:
    async with client_of(stack.ports["apiserver"], stack.authority.files.certificate, certificate) as client:
        return (await client.request("GET", path, user=user)).status


async def test_headers_count_only_from_the_front_proxy(
    stack: Stack, running: Running, front_proxy_ca: CertificateAuthority
) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "attributes")
    wrong_name = front_proxy_ca.issue_client("wrong-name", "somebody-else")
    assert await status_for(stack, stack.front_proxy, path, "admin") == 200
    assert await status_for(stack, stack.front_proxy, path, "") == 401
    assert await status_for(stack, wrong_name, path, "admin") == 401
    assert await status_for(stack, None, path, "admin") == 401
    assert await status_for(stack, None, "/apis/nonsense", "admin") == 401


async def test_a_certificate_of_another_authority_is_turned_away(stack: Stack, running: Running) -> None:
    forged = CertificateAuthority(stack.keys, "another-ca").issue_client("forged", "front-proxy-client")
    with pytest.raises(aiohttp.ClientError):
        await status_for(stack, forged, path_of(running.namespace, "workers", "pool-0", "attributes"), "admin")


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/readyz", "/apis", "/apis/subresources.simyard.dev", API, "/openapi/v2",
             "/openapi/v3", f"/openapi/v3{API}"]
)  # fmt: skip
async def test_health_and_descriptions_are_for_everybody(stack: Stack, path: str) -> None:
    assert await status_for(stack, None, path, "") == 200


def test_rbac_permits_one_action_and_not_another(stack: Stack, running: Running) -> None:
    role = rbac.build_action_role(running.namespace, WORKERS, "solve", ["pool-0"])
    name = role["metadata"]["name"]
    stack.apply(role)
    stack.kubectl("create", "rolebinding", name, f"--role={name}", "--user=ada", f"--namespace={running.namespace}")

    def call(worker: str, action: str) -> str:
        path = path_of(running.namespace, "workers", worker, f"actions/{action}")
        done = stack.try_kubectl("create", "--raw", path, "-f", "-", "--as=ada", stdin="{}")
        return done.stdout or done.stderr

    assert '"twice":2' in call("pool-0", "solve")
    assert 'User "ada" cannot create resource "workers/actions/refuse"' in call("pool-0", "refuse")
    assert "(Forbidden)" in call("pool-1", "solve")
    reading = stack.try_kubectl("get", "--raw", path_of(running.namespace, "workers", "pool-0", "log"), "--as=ada")
    assert "(Forbidden)" in reading.stderr


async def test_whoever_may_nothing_learns_nothing(client: Client, running: Running) -> None:
    for path in ("workers/pool-0/actions/solve", "workers/nobody/actions/solve", "workers/pool-0/actions/melt"):
        answer = await client.request(
            "POST", f"{API}/namespaces/{running.namespace}/{path}", user="eve", groups=("system:authenticated",)
        )
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert "declared" not in answer.text
