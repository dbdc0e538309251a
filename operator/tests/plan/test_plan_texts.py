# SPDX-License-Identifier: Apache-2.0
from simyard.plan.texts import format_count, format_count_is


def test_a_noun_has_its_plural_where_there_is_not_exactly_one() -> None:
    assert [format_count(number, "worker") for number in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
    assert [format_count_is(number, "worker") for number in (1, 2)] == ["1 worker is", "2 workers are"]
