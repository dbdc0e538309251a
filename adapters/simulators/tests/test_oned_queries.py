# SPDX-License-Identifier: Apache-2.0
"""Pools: which VMs a query gives, in which order, and what it costs in the model."""

import re

import pytest
from oned_world import World

from simyard_simulators.oned import Costs, Settings
from simyard_simulators.oned.methods import Methods
from simyard_simulators.oned.wire import Escaped, Parameter


class Api(World):
    """The methods over a cloud, without a wire."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.methods = Methods(self.cloud, self.life)

    def pool(self, method: str, *arguments: Parameter, session: str = "simyard:secret") -> tuple[list[int], float]:
        """The ids, in their order, and the cost of the whole request in milliseconds."""
        done = self.methods.call(f"one.vmpool.{method}", [session, *arguments])
        assert isinstance(done.answer, list)
        ok, body, _ = done.answer[:3]
        assert ok is True and isinstance(body, Escaped), done.answer
        ids = [int(number) for number in re.findall(rb"&lt;VM&gt;&lt;ID&gt;(\d+)&lt;", b"".join(body.pieces))]
        return ids, done.cost + self.settings.costs.request


@pytest.fixture
def api() -> Api:
    return Api(Settings())


@pytest.mark.parametrize(("finished", "milliseconds"), [(600, 6), (25_600, 57)])
def test_a_query_of_all_that_are_not_done_costs_by_the_whole_table(
    api: Api, finished: int, milliseconds: float
) -> None:
    """The figures are those of a real oned 7.4 with 50 live VMs."""
    api.cloud.fill(finished=finished, running=50)
    ids, cost = api.pool("info", -2, -1, -1, -1)
    assert len(ids) == 50
    assert cost == pytest.approx(milliseconds, rel=0.05)


@pytest.mark.parametrize("finished", [600, 25_600])
def test_an_exact_state_and_a_set_cost_the_same_whatever_has_ended(api: Api, finished: int) -> None:
    live = list(api.cloud.fill(finished=finished, running=50))[-50:]
    for ids, cost in (
        api.pool("info", -2, -1, -1, 3),
        api.pool("infoset", ",".join(map(str, live)), False),
    ):
        assert sorted(ids) == live
        assert cost == pytest.approx(4)


def test_a_range_spares_the_rows_below_it(api: Api) -> None:
    live = list(api.cloud.fill(finished=25_600, running=50))[-50:]
    ids, cost = api.pool("info", -2, live[0], -1, -1)
    assert sorted(ids) == live
    assert cost == pytest.approx(4.84, abs=0.1)


def test_extended_bodies_cost_more(api: Api) -> None:
    api.cloud.fill(running=100)
    _, short = api.pool("info", -2, -1, -1, 3)
    _, extended = api.pool("infoextended", -2, -1, -1, 3)
    assert extended > short


def test_pools_come_newest_first_and_in_pages(api: Api) -> None:
    api.cloud.fill(running=10)
    assert api.pool("info", -2, -1, -1, -1)[0] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert api.pool("info", -2, 3, 5, -1)[0] == [5, 4, 3]
    assert api.pool("info", -2, 8, -1, -1)[0] == [9, 8]
    assert api.pool("info", -2, 0, -4, -1)[0] == [9, 8, 7, 6]
    assert api.pool("info", -2, 8, -4, -1)[0] == [1, 0]


def test_states_choose(api: Api) -> None:
    api.cloud.fill(finished=2, running=1)
    api.create("waiting")
    assert api.pool("info", -2, -1, -1, -2)[0] == [3, 2, 1, 0]
    assert api.pool("info", -2, -1, -1, -1)[0] == [3, 2]
    assert api.pool("info", -2, -1, -1, 6)[0] == [1, 0]
    assert api.pool("info", -2, -1, -1, 1)[0] == [3]
    assert api.pool("info", -2, -1, -1, 11)[0] == []


def test_a_set_gives_what_is_done_too_and_leaves_out_what_is_unknown(api: Api) -> None:
    api.cloud.fill(finished=1, running=1)
    assert api.pool("infoset", "0,1,1,77,x", False)[0] == [1, 0]
    assert api.pool("infoset", "", False)[0] == []


def test_filters_choose_by_owner_and_group(api: Api) -> None:
    api.cloud.add_user("colleague", "pass", "simyard")
    api.cloud.add_user("stranger", "pass", "users")
    mine, theirs, foreign = (api.cloud.fill(running=1, owner=name)[0] for name in ("simyard", "colleague", "stranger"))
    assert api.pool("info", -3, -1, -1, -1)[0] == [mine]
    assert api.pool("info", -1, -1, -1, -1)[0] == [theirs, mine]
    assert api.pool("info", -4, -1, -1, -1)[0] == [theirs, mine]
    assert api.pool("info", -2, -1, -1, -1)[0] == [mine]
    assert api.pool("info", 4, -1, -1, -1)[0] == []
    assert api.pool("info", -2, -1, -1, -1, session="oneadmin:opennebula")[0] == [foreign, theirs, mine]
    assert api.pool("info", 4, -1, -1, -1, session="oneadmin:opennebula")[0] == [foreign]


def test_a_database_that_can_search_finds_by_key_and_value() -> None:
    api = Api(Settings(full_text_search=True))
    api.create("one", 'OWN_KEY="x"')
    api.create("two", 'OWN_KEY="y"')
    assert api.pool("info", -2, -1, -1, -1, "OWN_KEY=y")[0] == [1]
    assert api.pool("info", -2, -1, -1, -1, "NAME=one")[0] == [0]
    assert api.pool("info", -2, -1, -1, -1, "NETWORK=private")[0] == [1, 0]


def test_the_costs_of_making_vms_are_the_measured_ones() -> None:
    """39 a second by pyone's calls (3 ms each are its own), 51 by multicalls (1 ms a VM), 43 by four at once."""
    costs = Costs()
    once = costs.request + costs.write_request
    assert once + costs.write + 3 == pytest.approx(1000 / 39, rel=0.02)
    assert once / 16 + costs.write + 1 == pytest.approx(1000 / 51, rel=0.02)
    assert costs.write + 3 * costs.contended_write == pytest.approx(1000 / 43, rel=0.02)
