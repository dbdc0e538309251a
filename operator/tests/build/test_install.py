"""What an installation consists of."""

from __future__ import annotations

from kube_api import Api
from simyard.api import names
from simyard.build import apiservice, install


def test_another_namespace_is_named_everywhere() -> None:
    endpoint = apiservice.Endpoint(b"certificate", local_port=6444)
    assert names.SYSTEM_NAMESPACE in str(install.objects(endpoint=endpoint))
    assert names.SYSTEM_NAMESPACE not in str(install.objects("elsewhere", endpoint))


def test_the_server_takes_both_ways_to_the_apiserver(api: Api) -> None:
    for endpoint in (apiservice.Endpoint(b"certificate"), apiservice.Endpoint(b"certificate", local_port=6444)):
        service = apiservice.service("default", endpoint)
        answer = api.create(service, dry_run=True)
        assert answer.accepted, answer.message
        manifest = apiservice.api_service("default", endpoint)
        manifest["spec"]["caBundle"] = None
        assert api.create(manifest, dry_run=True).accepted


def test_a_local_apiserver_is_reached_at_its_port() -> None:
    endpoint = apiservice.Endpoint(b"certificate", local_port=6444)
    assert apiservice.service("ns", endpoint)["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert apiservice.api_service("ns", endpoint)["spec"]["service"]["port"] == 6444
