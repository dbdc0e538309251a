# SPDX-License-Identifier: Apache-2.0
"""Objects of an installation."""

from __future__ import annotations

from kube_api import Api
from simyard.api import names
from simyard.manifests import apiservice, install


def test_another_namespace_is_named_everywhere() -> None:
    endpoint = apiservice.Endpoint(b"certificate", local_port=6444)
    assert names.SYSTEM_NAMESPACE in str(install.build_objects(endpoint=endpoint))
    assert names.SYSTEM_NAMESPACE not in str(install.build_objects("elsewhere", endpoint))


def test_the_server_takes_both_ways_to_the_apiserver(api: Api) -> None:
    for endpoint in (apiservice.Endpoint(b"certificate"), apiservice.Endpoint(b"certificate", local_port=6444)):
        service = apiservice.build_service("default", endpoint)
        answer = api.create(service, dry_run=True)
        assert answer.accepted, answer.message
        manifest = apiservice.build_api_service("default", endpoint)
        manifest["spec"]["caBundle"] = None
        assert api.create(manifest, dry_run=True).accepted


def test_a_local_apiserver_is_reached_at_its_port() -> None:
    endpoint = apiservice.Endpoint(b"certificate", local_port=6444)
    assert apiservice.build_service("ns", endpoint)["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert apiservice.build_api_service("ns", endpoint)["spec"]["service"]["port"] == 6444
