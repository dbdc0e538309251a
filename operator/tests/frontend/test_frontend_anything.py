# SPDX-License-Identifier: Apache-2.0
"""Any request gets a status of OCCI, and a refusal one line with the reason. Refusals and reads change nothing."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from occi_memory import BASE, BEAM, START, MemoryBackend, compute, identity, network

from simyard.frontend.exchange import OcciRequest, parse_target
from simyard.frontend.handlers import Handlers
from simyard.occi.errors import OcciError
from simyard.occi.standard import COMPUTE, INFRASTRUCTURE_SCHEME

STATUSES = {200, 201, 400, 403, 404, 405, 406, 409, 413, 501}
KIND = f'compute; scheme="{INFRASTRUCTURE_SCHEME}"; class="kind"'
ACTION = f'start; scheme="{START.removesuffix("start")}"; class="action"'
FRAGMENTS = [
    KIND,
    ACTION,
    f'beam; scheme="{BEAM.scheme}"; class="mixin"',
    'x; scheme="http://x#"; class="mixin"; location="/x/"',
    "occi.compute.cores=2",
    'occi.compute.state="active"',
    "/compute/c1",
    f"{BASE}/compute/c2",
    *("", "=", ";", '"', "\xe4", "\x00", "[]", "{"),
    f'{{"resources":[{{"kind":"{COMPUTE}"}}]}}',
    f'{{"action":"{START}"}}',
    *("text/plain", "application/json", "text/occi", "text/uri-list", "*/*;q=0", "image/png"),
    *("no-cache", "OCCI/9.9", "text/plain; charset=utf-16"),
]
NAMES = ["category", "link", "x-occi-attribute", "x-occi-location", "accept", "content-type", "user-agent"]
NAMES += ["cache-control", "x-other"]
PATHS = ["/", "/-/", "/compute/", "/compute", "/compute/c1", "/compute/none", "/network/", "/os_tpl/beam/", "/entity/"]
PATHS += ["/resource/", "/link/", "/x/", "/x", "//", "/compute//", "/compute/c1/", "/.well-known/org/ogf/occi/-/"]
texts = st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=40))
bodies = st.lists(
    st.one_of(
        texts,
        st.builds(
            lambda name, value: f"{name}: {value}",
            st.sampled_from(["Category", "Link", "X-OCCI-Attribute", "X-OCCI-Location"]),
            texts,
        ),
    ),
    max_size=4,
).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))
queries = st.dictionaries(
    st.sampled_from(["action", "page", "number", "full", "fresh", "wait", "q"]),
    st.one_of(st.sampled_from(["start", "1", "0", "true", "-1", "99999999", ""]), st.text(max_size=10)),
    max_size=3,
)


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "BREW"]),
    path=st.one_of(st.sampled_from(PATHS), st.text(max_size=20).map(lambda text: f"/{text}")),
    query=queries,
    headers=st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=5),
    body=st.one_of(bodies, st.binary(max_size=50)),
    user=st.sampled_from(["ada", "net", "eve"]),
)
def test_every_request_has_an_answer_that_says_what_is_wrong(
    method: str,
    path: str,
    query: dict[str, str],
    headers: list[tuple[str, str]],
    body: bytes,
    user: str,
) -> None:
    backend = MemoryBackend()
    backend.put(compute(1), compute(2), network(1))
    before = dict(backend.stored)
    request = OcciRequest(method, path, query, headers, body, identity(user), BASE)
    response = asyncio.run(Handlers(backend).handle(request))
    assert response.status in STATUSES, response
    assert response.content_type
    changes = [change for change in backend.changes if not change.startswith("refresh")]
    if response.status >= 400:
        assert response.body.strip() and response.body.count(b"\n") <= 1
        assert backend.stored == before
    if response.status >= 400 or method in ("GET", "HEAD") or user == "eve":
        assert changes == []
    for name, value in response.headers:
        assert name.isprintable() and value.isprintable()


@given(st.one_of(st.text(max_size=60), st.text("%/?&=0aF+ ", max_size=40)).map(lambda text: f"/{text}"))
def test_a_target_is_decoded_or_refused(target: str) -> None:
    try:
        path, query = parse_target(target, "target")
    except OcciError as error:
        assert error.status == 400
    else:
        assert path.startswith("/") and path.isprintable()
        assert all(isinstance(value, str) for value in query.values())
