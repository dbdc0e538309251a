# SPDX-License-Identifier: Apache-2.0
"""The modes of the file store in the chart."""

import base64
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from helm_release import CHART, NAMESPACE, Helm, Manifest, container_of, of_kind, pod_of

from simyard.files.access import StoreAccess

CLAIM = ("files.mode=objectBucketClaim", "files.objectBucketClaim.name=bucket")
ROLES = ("apiserver", "operator")
pytestmark = pytest.mark.xdist_group("chart")


def decode(value: str) -> bytes:
    return base64.b64decode(value)


def volume_of(rendered: list[Manifest], role: str) -> list[Manifest]:
    [volume] = [item for item in pod_of(rendered, role)["spec"]["volumes"] if item["name"] == "files"]
    sources: list[Manifest] = volume["projected"]["sources"]
    return sources


def test_without_a_file_store_nothing_of_it_is_made(helm: Helm) -> None:
    rendered = helm.render()
    assert not any(
        "files" in item["metadata"]["name"] for item in rendered if item["kind"] != "CustomResourceDefinition"
    )
    for role in ROLES:
        assert not any("files" in argument for argument in container_of(rendered, role)["args"])


@pytest.mark.parametrize(
    "values", [("files.mode=embedded",), ("files.mode=existing", "files.existingSecret=mine"), CLAIM]
)
def test_both_roles_get_the_access_and_the_limits(helm: Helm, values: tuple[str, ...]) -> None:
    rendered = helm.render(*values, "files.quota=100Gi", "files.retentionDays=7")
    for role, option in (("apiserver", "--files-quota=100Gi"), ("operator", "--files-retention-days=7")):
        arguments = container_of(rendered, role)["args"]
        assert {"--files-directory=/etc/simyard/files", option} <= set(arguments)
        mounts = {item["name"]: item["mountPath"] for item in container_of(rendered, role)["volumeMounts"]}
        assert mounts["files"] == "/etc/simyard/files"
        assert volume_of(rendered, role)
    helm.dry_run([item for item in rendered if item["kind"] in ("Deployment", "StatefulSet", "ConfigMap", "Service")])


def test_allowed_urls_do_not_need_a_store(helm: Helm) -> None:
    rendered = helm.render("files.urls={https://data.example.com/meshes/,https://b.example:8443/}")
    for role in ROLES:
        urls = [it for it in container_of(rendered, role)["args"] if it.startswith("--files-url=")]
        assert urls == ["--files-url=https://data.example.com/meshes/", "--files-url=https://b.example:8443/"]


def test_an_existing_secret_may_have_its_ca_elsewhere(helm: Helm) -> None:
    rendered = helm.render("files.mode=existing", "files.existingSecret=mine", "files.caSecret=my-ca")
    for role in ROLES:
        assert volume_of(rendered, role) == [
            {"secret": {"name": "mine"}},
            {"secret": {"name": "my-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]


def test_an_object_bucket_claim_has_the_keys_that_the_platform_reads(helm: Helm) -> None:
    rendered = helm.render(*CLAIM, "files.objectBucketClaim.encryption=Required")
    given = {
        "BUCKET_HOST": "rook-ceph-rgw-store.rook-ceph.svc",
        "BUCKET_PORT": "443",
        "BUCKET_NAME": "simyard-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    sources = volume_of(rendered, "apiserver")
    items = [item for source in sources for item in next(iter(source.values())).get("items", [])]
    values = {item["path"]: given[item["key"]] for item in items}
    access = StoreAccess.from_values(values | of_kind(rendered, "ConfigMap")["simyard-files"]["data"])
    assert (access.endpoint, access.bucket) == ("https://rook-ceph-rgw-store.rook-ceph.svc:443", "simyard-1")
    assert access.encryption_required


@pytest.mark.parametrize(
    ("endpoint", "host"), [("", f"simyard-files.{NAMESPACE}.svc"), ("https://s3.lab:8443", "s3.lab")]
)
def test_the_embedded_store_has_a_certificate_for_its_address(helm: Helm, endpoint: str, host: str) -> None:
    rendered = helm.render("files.mode=embedded", f"files.embedded.endpoint={endpoint}")
    secrets = of_kind(rendered, "Secret")
    certificate = x509.load_pem_x509_certificate(decode(secrets["simyard-files-tls"]["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in names.get_values_for_type(x509.DNSName)
    values = {name: decode(value).decode() for name, value in secrets["simyard-files"]["data"].items()}
    access = StoreAccess.from_values(values)
    assert urlsplit(access.endpoint).hostname == host
    assert len(access.credentials.secret_key) == 40
    sources = volume_of(rendered, "apiserver")
    assert {"name": "simyard-files-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]} in [
        source["secret"] for source in sources
    ]


def test_the_embedded_store_serves_tls_at_the_port_that_its_network_policy_opens(helm: Helm) -> None:
    rendered = helm.render("files.mode=embedded")
    store = of_kind(rendered, "StatefulSet")["simyard-files"]
    pod = store["spec"]["template"]
    policy = of_kind(rendered, "NetworkPolicy")["simyard-files"]["spec"]
    service = of_kind(rendered, "Service")["simyard-files"]["spec"]
    [container] = pod["spec"]["containers"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    ports = {
        container["ports"][0]["containerPort"],
        policy["ingress"][0]["ports"][0]["port"],
        service["ports"][0]["port"],
    }
    assert ports == {7070}
    assert {"--cert=/etc/simyard/tls/tls.crt", "--key=/etc/simyard/tls/tls.key"} <= set(container["args"])
    assert store["metadata"]["labels"]["simyard.dev/production"] == "false"
    assert store["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (("files.mode=existing",), "existingSecret"),
        (("files.mode=objectBucketClaim",), "objectBucketClaim"),
        (("files.mode=s3",), "mode"),
        (("files.quota=much",), "quota"),
        (("files.mode=embedded", "files.embedded.endpoint=http://plain"), "endpoint"),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, values: tuple[str, ...], field: str) -> None:
    done = helm.run("template", "simyard", str(CHART), *(f"--set={value}" for value in values))
    assert done.returncode != 0
    assert field in done.stderr
