# SPDX-License-Identifier: Apache-2.0
"""Files at URLs in ServiceActions, and the requests with which workers receive them."""

from plan_objects import NOW, make_action, make_service

from simyard.plan.action_request import build_action_request
from simyard.plan.actions import ActionPlan, Need, Target, plan_action
from simyard_adapter.file_urls import NO_URLS, AllowedUrls


def test_a_file_at_a_url_needs_the_permission_of_the_platform_team() -> None:
    actions = [{"name": "solve", "mode": "Async", "parameters": [{"name": "mesh", "type": "file"}]}]
    service = make_service(interface={"attributes": [], "actions": actions})
    action = make_action(parameters={"mesh": {"url": "https://data.example.com/meshes/a.inp"}})
    allowed = AllowedUrls(("https://data.example.com/meshes/",))

    def plan(urls: AllowedUrls) -> ActionPlan:
        return plan_action(action, Target(service), sent=None, now=NOW, urls=urls)

    assert plan(allowed).need is Need.ASSIGN
    for urls in (NO_URLS, AllowedUrls(("https://other.example.com/",))):
        refused = plan(urls).status
        assert refused is not None
        assert refused.failure is not None
        assert refused.failure.reason == "InvalidParameters"
        assert refused.failure.message.startswith("spec.parameters.mesh.url: is ")
        assert "files.urls" in refused.failure.message
    assert build_action_request(action, service, allowed)["urls"] == ["https://data.example.com/meshes/"]
    assert "urls" not in build_action_request(action, service, NO_URLS)
