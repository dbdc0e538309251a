# SPDX-License-Identifier: Apache-2.0
"""The resource ``files`` behind a real kube-apiserver, with kubectl's plugin and a real S3 server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from apiserver_stack import Client, Stack, unique

from simyard.api.names import OPERATOR, SYSTEM_NAMESPACE
from simyard.files.access import StoreAccess
from simyard.files.references import References
from simyard.files.store import ObjectStore
from simyard.files.sweep import FileSweep, SweepSettings
from simyard.frontend.access import Access, Permission
from simyard.frontend.downloads import Downloads
from simyard.frontend.exchange import Identity
from simyard.kube.cache import ALL_NAMESPACES
from simyard.manifests.frontend_account import build_bound_account
from simyard.occi.errors import OcciError
from simyard.serving.files import MAX_CAUSES
from simyard_adapter.digests import PART_BYTES, digest_file
from simyard_adapter.transfers import SignedRequest, Transfers
from simyard_adapter.uploads import UploadOffer
from simyard_dev import tools
from simyard_sites.kubernetes.client import KubeClient

pytestmark = pytest.mark.xdist_group("apiserver")

PLUGIN = Path(sys.executable).parent / "kubectl-simyard"


class AllRights:
    """The rights of a user who may do everything."""

    async def check(self, identity: Identity, permission: Permission) -> None:
        """Refuse nothing."""


@pytest.fixture
def namespace(stack: Stack) -> Iterator[str]:
    name = unique("files")
    stack.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    stack.kubectl("delete", "namespace", name, "--wait=false")


def simyard(stack: Stack, namespace: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    kubectl = tools.ensure(["kubectl"])["kubectl"]
    environment = {**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    command = [PLUGIN, "--kubeconfig", stack.control_plane.kubeconfig, "-n", namespace, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def path_of(namespace: str, name: str = "") -> str:
    return f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{namespace}/files{f'/{name}' if name else ''}"


def offer(**spec: object) -> bytes:
    return json.dumps({"spec": {"address": f"sha256:{'0' * 64}", "bytes": 10, **spec}}).encode()


def test_a_user_uploads_lists_downloads_and_deletes_a_file(stack: Stack, namespace: str, tmp_path: Path) -> None:
    deck = tmp_path / "deck.inp"
    deck.write_bytes(os.urandom(3_000_000))
    uploaded = simyard(stack, namespace, "cp", deck, "files:")
    assert (uploaded.returncode, uploaded.stderr) == (0, "")
    address = uploaded.stdout.removesuffix("\n")
    assert address == digest_file(deck).address
    assert simyard(stack, namespace, "cp", deck, "files:").stdout == uploaded.stdout

    listed = simyard(stack, namespace, "files").stdout.splitlines()
    assert listed[0].split() == ["ADDRESS", "SIZE", "AGE", "OWNER", "NAME"]
    assert [line.split()[:2] + line.split()[3:] for line in listed[1:]] == [
        [address, "2.86Mi", "simyard-admin", "deck.inp"]
    ]
    back = simyard(stack, namespace, "cp", f"files:{address}", tmp_path / "back.inp")
    assert (back.returncode, back.stderr) == (0, "")
    assert (tmp_path / "back.inp").read_bytes() == deck.read_bytes()

    table = stack.kubectl("get", "files.subresources.simyard.dev", "-n", namespace)
    assert address in table
    assert simyard(stack, namespace, "files", "--delete", address).returncode == 0
    gone = simyard(stack, namespace, "cp", f"files:{address}", tmp_path / "again.inp")
    assert "not found" in gone.stderr
    assert not (tmp_path / "again.inp").exists()


def test_a_large_file_goes_in_parts_into_a_folder_under_its_name(stack: Stack, namespace: str, tmp_path: Path) -> None:
    mesh = tmp_path / "mesh.bin"
    with mesh.open("wb") as file:
        file.truncate(130 * 2**20)
    uploaded = simyard(stack, namespace, "cp", mesh, "files:")
    assert (uploaded.returncode, uploaded.stderr) == (0, "")
    address = uploaded.stdout.strip()
    assert address.startswith("sha256-64m:")
    (tmp_path / "back").mkdir()
    done = simyard(stack, namespace, "cp", f"files:{address}", tmp_path / "back")
    assert (done.returncode, done.stderr) == (0, "")
    assert digest_file(tmp_path / "back" / "mesh.bin").address == address


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "spec"),
        (offer(address="sha256:0"), "spec.address"),
        (offer(bytes=-1), "spec.bytes"),
        (offer(bytes=2**27), "spec.address"),
        (offer(address=f"sha256-64m:{'0' * 64}", bytes=2**27, parts=["0" * 64]), "spec.parts"),
        (offer(mediaType="text"), "spec.mediaType"),
        (offer(surprise=1), "spec.surprise"),
        (offer(name="梁" * 255), "spec.name"),
    ],
)
async def test_an_upload_that_cannot_be_names_the_field(
    client: Client, namespace: str, body: bytes, field: str
) -> None:
    answer = await client.request("POST", path_of(namespace), user="admin", data=body)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, field), answer.text


async def test_a_file_of_another_namespace_and_a_path_that_is_no_address_are_not_found(
    stack: Stack, client: Client, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("content of ours")
    address = simyard(stack, namespace, "cp", tmp_path / "file", "files:").stdout.strip()
    assert (await client.request("GET", path_of(namespace, address), user="admin")).status == 200
    assert (await client.request("GET", path_of("default", address), user="admin")).status == 404
    assert (await client.request("GET", path_of(namespace, "sha256:..%2f..%2fx"), user="admin")).status == 404


async def test_an_answer_names_some_of_many_errors(client: Client, namespace: str) -> None:
    wrong = offer(address=f"sha256-64m:{'0' * 64}", bytes=2**33, parts=["x"] * 5000)
    answer = await client.request("POST", path_of(namespace), user="admin", data=wrong)
    causes = answer.json["details"]["causes"]
    assert (answer.status, len(causes)) == (422, MAX_CAUSES + 1)
    assert causes[-1] == {
        "reason": "FieldValueInvalid",
        "message": f"{5000 - MAX_CAUSES} further errors are not listed",
        "field": "spec",
    }


async def test_a_limit_of_0_is_no_limit_and_a_negative_one_is_refused(
    stack: Stack, client: Client, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("one of the list")
    address = simyard(stack, namespace, "cp", tmp_path / "file", "files:").stdout.strip()
    answer = await client.request("GET", f"{path_of(namespace)}?limit=0", user="admin")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == [address]
    assert (await client.request("GET", f"{path_of(namespace)}?limit=-1", user="admin")).status == 400


async def test_a_user_without_the_right_gets_no_url(client: Client, namespace: str) -> None:
    answer = await client.request(
        "POST", path_of(namespace), user="eve", groups=("system:authenticated",), data=offer()
    )
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "files"' in answer.json["message"]


async def test_a_quota_of_the_namespace_refuses_an_upload_and_names_the_remedy(
    stack: Stack, client: Client, namespace: str
) -> None:
    stack.kubectl("annotate", "namespace", namespace, "simyard.dev/files-quota=1Ki")
    assert (await client.request("POST", path_of(namespace), user="admin", data=offer(bytes=1000))).status == 201
    other = offer(address=f"sha256:{'1' * 64}", bytes=1000)
    answer = await client.request("POST", path_of(namespace), user="admin", data=other)
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert "requested: 1000, used: 1000, limited: 1Ki: delete files" in answer.json["message"]
    stack.kubectl("annotate", "namespace", namespace, "simyard.dev/files-quota=much", "--overwrite")
    answer = await client.request("POST", path_of(namespace), user="admin", data=other)
    assert (answer.status, "'much' is no quantity" in answer.json["message"]) == (403, True)


async def test_the_sweep_keeps_what_an_action_names_and_deletes_what_a_namespace_left(
    stack: Stack, namespace: str, tmp_path: Path
) -> None:
    addresses = []
    for name in ("named", "forgotten"):
        (tmp_path / name).write_text(f"{name} in {namespace}")
        addresses.append(simyard(stack, namespace, "cp", tmp_path / name, "files:").stdout.strip())
    stack.apply(
        {
            "apiVersion": "simyard.dev/v1alpha1",
            "kind": "ServiceAction",
            "metadata": {"name": "solve", "namespace": namespace},
            "spec": {
                "target": {"kind": "WorkerPool", "name": "none"},
                "action": "solve",
                "parameters": {"decks": [{"file": addresses[0]}]},
            },
        }
    )
    operator = tmp_path / "operator.kubeconfig"
    stack.control_plane.write_service_account_kubeconfig(operator, SYSTEM_NAMESPACE, OPERATOR)
    access = StoreAccess.from_directory(stack.files.access)
    async with await KubeClient.connect(operator) as client, ObjectStore(access) as store:
        references = References(client, ALL_NAMESPACES)
        uid = await references.find_uid(namespace)
        assert (await references.list_namespaces())[uid] == namespace
        for path in (stack.files.objects / access.bucket / uid).rglob("*"):
            os.utime(path, (0, 0))
        await FileSweep(store, references, SweepSettings(timedelta(days=30))).sweep()
        left = [item.key async for item in store.list_objects(f"{uid}/in/")]
    assert left == [f"{uid}/in/{addresses[0]}"]


async def test_a_frontend_gets_urls_in_the_namespaces_of_its_service_only(
    stack: Stack, namespace: str, tmp_path: Path
) -> None:
    deck = tmp_path / "deck.inp"
    deck.write_text("a deck")
    address = simyard(stack, namespace, "cp", deck, "files:").stdout.strip()
    kubeconfig = tmp_path / "frontend.kubeconfig"
    account, *bindings = build_bound_account(namespace, namespace, SYSTEM_NAMESPACE)
    stack.apply(account)
    stack.control_plane.write_service_account_kubeconfig(kubeconfig, SYSTEM_NAMESPACE, namespace)
    async with await KubeClient.connect(kubeconfig) as client:
        downloads = Downloads(client, cast(Access, AllRights()), namespace)
        user = Identity("ada", "", (), ())
        with pytest.raises(OcciError) as refused:
            await downloads.find_url(user, address)
        assert refused.value.status == 503
        for binding in bindings:
            stack.apply(binding)
        url = await downloads.find_url(user, address)
        with pytest.raises(OcciError) as refused:
            await downloads.find_url(user, f"sha256:{'0' * 64}")
        assert refused.value.status == 404
    request = SignedRequest("GET", url, {})
    await asyncio.to_thread(Transfers().download, lambda: request, tmp_path / "back", address, lambda _: None)
    assert (tmp_path / "back").read_text() == "a deck"


async def test_an_upload_to_a_namespace_that_is_deleted_meanwhile_leaves_nothing(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    namespace = unique("files")
    stack.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    uid = stack.kubectl("get", "namespace", namespace, "-o", "jsonpath={.metadata.uid}")
    small, mesh = tmp_path / "small", tmp_path / "mesh"
    small.write_bytes(os.urandom(8 * 2**20))
    with mesh.open("wb") as file:
        file.truncate(PART_BYTES + 1)
    offers = [await get_offer(client, namespace, path) for path in (small, mesh)]
    deleted = threading.Event()

    def delete_once(_: int) -> None:
        if not deleted.is_set():
            deleted.set()
            stack.kubectl("delete", "namespace", namespace)

    # The URL is valid for some hours more, so the file arrives in a namespace that is gone. The parts of the other one
    # are never completed.
    await asyncio.to_thread(Transfers().upload, offers[0].requests[0], small, delete_once)
    await asyncio.to_thread(Transfers().upload, offers[1].requests[1], mesh, lambda _: None)
    assert (await client.request("POST", path_of(namespace), user="admin", data=offer())).status == 404

    access = StoreAccess.from_directory(stack.files.access)
    operator = tmp_path / "operator.kubeconfig"
    stack.control_plane.write_service_account_kubeconfig(operator, SYSTEM_NAMESPACE, OPERATOR)
    async with await KubeClient.connect(operator) as kube, ObjectStore(access) as store:
        sweep = FileSweep(store, References(kube, ALL_NAMESPACES), SweepSettings(timedelta(days=30)))
        await sweep.sweep()
        assert len([item async for item in store.list_objects(f"{uid}/in/")]) == 1, "an hour of grace"
        for path in (stack.files.objects / access.bucket).rglob("*"):
            if uid in str(path) or ".sgwtmp" in str(path):
                os.utime(path, (0, 0))
        await sweep.sweep()
        assert [item.key async for item in store.list_objects(f"{uid}/")] == []
        assert [item.key async for item in store.list_uploads(f"{uid}/")] == []


async def get_offer(client: Client, namespace: str, path: Path) -> UploadOffer:
    digest = digest_file(path)
    parts = {"parts": [part.hex() for part in digest.parts]} if digest.in_parts else {}
    answer = await client.request(
        "POST", path_of(namespace), user="admin", data=offer(address=digest.address, bytes=digest.size, **parts)
    )
    assert answer.status == 201, answer.text
    return UploadOffer.from_json(answer.json["status"])


async def test_while_the_store_is_away_the_answer_says_so(stack: Stack, client: Client, namespace: str) -> None:
    stack.files.stop(0)
    try:
        answer = await client.request("GET", path_of(namespace), user="admin")
    finally:
        stack.files.start()
    assert answer.status == 503
    assert "the file store at" in answer.json["message"]
