# SPDX-License-Identifier: Apache-2.0
"""The difference of the API server's clock from this machine's, read from its answers."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from simyard.plan.times import MAX_SKEW_SECONDS, filter_skew
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient, compute_clock_skew

AT = 1_790_000_000.0


@given(
    st.floats(-1e7, 1e7, allow_nan=False),
    st.floats(0, 60, allow_nan=False),
    st.floats(0, 60, allow_nan=False),
)
def test_the_difference_is_told_but_for_the_time_of_the_request_and_the_fraction_of_a_second(
    ahead: float, there: float, back: float
) -> None:
    said = formatdate(AT + there + ahead, usegmt=True)
    skew = compute_clock_skew(said, AT, AT + there + back)
    assert skew is not None
    assert abs(skew) <= abs(ahead) + 1e-3, "the skew is never overestimated"
    assert abs(ahead - skew) <= there + back + 1.001


def test_an_answer_without_a_date_tells_nothing() -> None:
    assert compute_clock_skew(None, AT, AT) is None
    assert compute_clock_skew("yesterday", AT, AT) is None


def test_clocks_that_agree_to_a_minute_agree() -> None:
    assert filter_skew(None) == filter_skew(MAX_SKEW_SECONDS) == filter_skew(-MAX_SKEW_SECONDS) == 0
    assert filter_skew(MAX_SKEW_SECONDS + 1) == MAX_SKEW_SECONDS + 1
    assert filter_skew(-3600) == -3600


async def test_a_real_api_server_tells_the_time(control_plane: ControlPlane) -> None:
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        assert client.clock_skew_seconds is None
        await client.request("GET", "/version")
        assert client.clock_skew_seconds is not None
        assert abs(client.clock_skew_seconds) < MAX_SKEW_SECONDS
