# SPDX-License-Identifier: Apache-2.0
"""A design gives each index a point; wrong designs are refused with the path of the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.api.study import StudySpec
from simyard.plan.studies.axes import RoundedInterval
from simyard.plan.studies.designs import Design, Searched, build_design
from simyard.plan.studies.table_file import read_table_file
from simyard_adapter.declarations import Action, InvalidValueError, InvalidValuesError

SOLVE = Action.from_json(
    {
        "name": "solve",
        "parameters": [
            {"name": "length", "type": "number", "unit": "mm", "minimum": 1, "maximum": 5000, "required": True},
            {"name": "load", "type": "number", "unit": "N", "default": 100},
            {"name": "elements", "type": "integer", "minimum": 1, "maximum": 1000},
            {"name": "material", "type": "string", "enum": ["steel", "aluminium"]},
        ],
        "result": [{"name": "mass", "type": "number"}, {"name": "name", "type": "string"}],
    }
)
ADDRESS = f"sha256:{'0' * 64}"
SAMPLED = ("random", "latinHypercube", "sobol", "halton")


def design_of(design: dict, parameters: dict | None = None) -> Design:
    spec = {
        "target": {"kind": "WorkerPool", "name": "beams"},
        "action": "solve",
        "parameters": parameters or {},
        "design": design,
    }
    return build_design(StudySpec.model_validate(spec), SOLVE)


def points_of(design: dict, parameters: dict | None = None) -> list[tuple]:
    made = design_of(design, parameters)
    return [made.compute_point(index) for index in range(made.count)]


def problem_of(design: dict, parameters: dict | None = None) -> str:
    with pytest.raises(InvalidValuesError) as caught:
        design_of(design, parameters)
    return str(caught.value)


def test_a_grid_has_all_combinations_and_its_last_axis_varies_fastest() -> None:
    axes = [{"name": "length", "start": 500, "stop": 700, "step": 100}, {"name": "load", "values": [10, 20]}]
    assert points_of({"grid": {"axes": axes}}) == [(500, 10), (500, 20), (600, 10), (600, 20), (700, 10), (700, 20)]


def test_the_steps_of_a_range_are_decimals_and_include_its_end() -> None:
    axes = [{"name": "length", "start": "1.1", "stop": "1.7", "step": "0.2"}]
    assert points_of({"grid": {"axes": axes}}) == [(1.1,), (1.3,), (1.5,), (1.7,)]


def test_a_range_may_lead_downwards() -> None:
    axes = [{"name": "length", "start": 30, "stop": 5, "step": -10}]
    assert points_of({"grid": {"axes": axes}}) == [(30,), (20,), (10,)]


def test_a_count_divides_a_range_evenly_on_both_scales() -> None:
    linear = {"name": "length", "start": 1, "stop": 2, "count": 3}
    log = {"name": "load", "start": 1, "stop": 1000, "count": 4, "scale": "Log"}
    assert points_of({"grid": {"axes": [linear]}}) == [(1,), (1.5,), (2,)]
    assert points_of({"grid": {"axes": [log]}}, {"length": 1}) == [(1,), (10,), (100,), (1000,)]


def test_an_integer_has_the_step_1_by_default() -> None:
    axes = [{"name": "elements", "start": 3, "stop": 5}]
    assert points_of({"grid": {"axes": axes}}, {"length": 1}) == [(3,), (4,), (5,)]
    samples = {"axes": axes, "count": 100}
    assert {point[0] for point in points_of({"random": samples}, {"length": 1})} == {3, 4, 5}


def test_a_table_gives_its_rows_in_order() -> None:
    table = {"columns": ["load", "length"], "rows": [[5, 10], [6, 20]]}
    assert points_of({"table": table}) == [(5, 10), (6, 20)]


@given(st.sampled_from(SAMPLED), st.integers(0, 2**31 - 1), st.integers(1, 60))
def test_samples_lie_within_the_axes_and_depend_on_seed_and_index_only(kind: str, seed: int, count: int) -> None:
    axes = [
        {"name": "length", "start": 10, "stop": 1000, "scale": "Log", "unit": "mm"},
        {"name": "load", "start": "-0.5", "stop": "0.5", "step": "0.25"},
        {"name": "elements", "start": 1, "stop": 100, "scale": "Log"},
        {"name": "material", "values": ["steel", "aluminium"]},
    ]
    design = {kind: {"axes": axes, "count": count, "seed": seed}}
    points = points_of(design)
    assert len(points) == count
    again = design_of(design)
    assert [again.compute_point(index) for index in reversed(range(count))] == points[::-1]
    for length, load, elements, material in points:
        assert 10 <= length <= 1000
        assert load in (-0.5, -0.25, 0, 0.25, 0.5)
        assert elements in range(1, 101)
        assert material in ("steel", "aluminium")


def test_samples_on_a_logarithmic_scale_hit_each_decade_equally() -> None:
    axes = [{"name": "length", "start": 1, "stop": 1000, "scale": "Log"}]
    points = points_of({"latinHypercube": {"axes": axes, "count": 300}})
    assert [sum(low <= value < 10 * low for (value,) in points) for low in (1, 10, 100)] == [100, 100, 100]


@pytest.mark.parametrize(
    ("axis", "problem"),
    [
        ({"name": "lenght", "values": [1]}, "spec.design.grid.axes[0]: lenght is not a parameter"),
        ({"name": "length", "values": [1, 9000]}, "spec.design.grid.axes[0].values[1]: 9000 is above the maximum"),
        ({"name": "length", "start": 1, "stop": 9000, "step": 1}, "spec.design.grid.axes[0]: 5001 is above"),
        ({"name": "length", "start": 1, "stop": 2}, "spec.design.grid.axes[0]: a range of length needs `step`"),
        ({"name": "length", "start": 1, "stop": 2, "step": -1}, "axes[0].step: does not lead from"),
        ({"name": "length", "start": 1, "stop": 2, "count": 1}, "axes[0].count: one value cannot include both"),
        ({"name": "length", "start": 1, "stop": 9, "step": 2, "scale": "Log"}, "axes[0].scale: a grid on a log"),
        ({"name": "length", "start": 0, "stop": 9, "count": 2, "scale": "Log"}, "axes[0].start: a logarithmic scale"),
        ({"name": "length", "values": [1], "unit": "m"}, "axes[0].unit: is m, but the service declares the unit mm"),
        ({"name": "length"}, "axes[0]: needs either `values`, or `start` and `stop`"),
        ({"name": "length", "values": [1], "start": 1, "stop": 2}, "axes[0]: needs either `values`, or"),
        ({"name": "length", "values": [1], "step": 1}, "axes[0].values: `step`, `count` and `scale` belong to a"),
        ({"name": "elements", "start": 1, "stop": 2, "step": "0.5"}, "axes[0]: 1.5 is not of type integer"),
    ],
)
def test_a_wrong_axis_is_refused_with_its_path(axis: dict, problem: str) -> None:
    assert problem in problem_of({"grid": {"axes": [axis]}})


def test_a_parameter_is_either_fixed_or_varies_and_none_is_missing() -> None:
    axes = [{"name": "length", "values": [1]}]
    assert "length has a fixed value in spec.parameters" in problem_of({"grid": {"axes": axes}}, {"length": 5})
    assert "length appears twice" in problem_of({"grid": {"axes": axes * 2}})
    other = [{"name": "load", "values": [1]}]
    assert "spec.parameters.length: is required" in problem_of({"grid": {"axes": other}})
    assert "spec.parameters.width: is not declared" in problem_of({"grid": {"axes": axes}}, {"width": 1})


def test_a_stop_rule_names_a_result_that_is_a_number() -> None:
    action = Action.from_json(
        {
            "name": "solve",
            "parameters": [{"name": "x", "type": "number"}],
            "result": [{"name": "y", "type": "number"}, {"name": "text", "type": "string"}],
        }
    )
    spec = {
        "target": {"kind": "WorkerPool", "name": "beams"},
        "action": "solve",
        "design": {"grid": {"axes": [{"name": "x", "values": [1]}]}},
    }

    def build(result: str) -> None:
        build_design(StudySpec.model_validate({**spec, "stopWhen": [{"result": result, "atMost": 1}]}), action)

    build("y")
    for wrong in ("z", "text"):
        with pytest.raises(InvalidValuesError, match=r"spec.stopWhen\[0\].result: .*such results are: y"):
            build(wrong)


def test_a_row_of_another_length_is_refused() -> None:
    table = {"columns": ["length", "load"], "rows": [[1, 2], [3]]}
    assert problem_of({"table": table}) == "spec.design.table.rows[1]: has 1 values, but the table has 2 columns"


def test_a_grid_of_too_many_points_is_refused() -> None:
    axes = [{"name": name, "start": 1, "stop": 2, "count": 10_000} for name in ("length", "load")]
    assert "has 100000000 points, at most 10000000 are accepted" in problem_of({"grid": {"axes": axes}})


def test_the_number_of_samples_belongs_to_the_design() -> None:
    axes = [{"name": "length", "start": 1, "stop": 2, "count": 3}]
    assert "spec.design.sobol.axes[0].count: belongs to a grid" in problem_of({"sobol": {"axes": axes, "count": 3}})


def test_a_table_in_a_file_has_the_points_of_the_table_in_the_object() -> None:
    rows = [[500, "steel"], [600.5, "aluminium"]]
    inline = design_of({"table": {"columns": ["length", "material"], "rows": rows}})
    spec = {"target": {"kind": "WorkerPool", "name": "b"}, "action": "solve", "design": {"table": {"file": ADDRESS}}}
    table = read_table_file(b"\xef\xbb\xbflength, material\r\n500,steel\r\n\r\n600.5,aluminium\r\n", SOLVE.parameters)
    assert build_design(StudySpec.model_validate(spec), SOLVE, table) == inline


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"length\n", "has no points"),
        (b"length,load\n1\n", "line 2 has 1 cells, but the header has 2"),
        (b"length\n1\nlong\n", "line 3, column length: the cell is no value"),
        pytest.param(b"load,length\n1," + b"[" * 100_000 + b"\n", "line 2, column length", id="deep"),
        pytest.param(b"load,length\n" + b"1" * 5_000 + b",1\n", "line 2, column load", id="digits"),
        (b"load\n\n\nlong\n", "line 4, column load"),
        (b'material,load\n"a\nb",1\nsteel,long\n', "line 4, column load"),
        pytest.param(b"load\n" + b"1\n" * 100_000 + b"a", "line 100002: the file has more than 100,000", id="long"),
        (b"\xff\xfe", "cannot be read as CSV"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_its_line(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        read_table_file(content, SOLVE.parameters)


SEARCHED = {"objectives": [{"result": "mass"}], "algorithm": "DE", "population": 4, "evaluations": 8}


def search_of(*axes: dict, **fields: object) -> Searched:
    fixed = {} if any(axis["name"] == "length" for axis in axes) else {"length": 100}
    made = design_of({"optimise": {"axes": list(axes), **SEARCHED, **fields}}, fixed)
    assert isinstance(made, Searched)
    return made


@pytest.mark.parametrize(
    ("axis", "positions", "values"),
    [
        ({"name": "length", "start": 1, "stop": 11, "unit": "mm"}, [0, 0.5, 1], [1, 6, 11]),
        ({"name": "length", "start": 1, "stop": 100, "scale": "Log"}, [0, 0.5, 1], [1, pytest.approx(10), 100]),
        ({"name": "elements", "start": 1, "stop": 4}, [0, 0.24, 0.25, 0.74, 0.75, 1], [1, 1, 2, 3, 4, 4]),
        ({"name": "material", "values": ["steel", "aluminium"]}, [0, 0.49, 0.5, 1], ["steel"] * 2 + ["aluminium"] * 2),
    ],
)  # fmt: skip
def test_coordinates_of_a_search_become_values_of_the_declared_type(
    axis: dict, positions: list[float], values: list[object]
) -> None:
    search = search_of(axis, population=len(positions) if len(positions) >= 4 else 4)
    search.coordinates[1] = [[position] for position in positions]
    first = search.generations.get_tasks(1).start
    assert [search.compute_point(first + place)[0] for place in range(len(positions))] == values


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"objectives": [{"result": "weight"}]}, "spec.design.optimise.objectives[0].result", "such results are: mass"),
        (
            {"constraints": [{"result": "name", "atMost": 1}]},
            "spec.design.optimise.constraints[0].result",
            "name is no result that is a number",
        ),
        ({"axes": [{"name": "length", "start": 5, "stop": 5}]}, "spec.design.optimise.axes[0].stop", "above `start`"),
        (
            {"axes": [{"name": "length", "start": 1, "stop": 5, "unit": "m"}]},
            "spec.design.optimise.axes[0].unit",
            "the service declares the unit mm",
        ),
        (
            {"generations": 10_000, "evaluations": None, "population": 1000, "islands": {"count": 2}},
            "spec.design.optimise.evaluations",
            "have fewer islands or evaluations",
        ),
    ],
)
def test_a_search_that_does_not_fit_the_action_is_refused(fields: dict, path: str, problem: str) -> None:
    axes = fields.pop("axes", [{"name": "length", "start": 1, "stop": 5}])
    with pytest.raises(InvalidValuesError) as caught:
        search_of(*axes, **fields)
    assert path in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("number", ["1e999999", "1e999999999", "1e-999999", "1e99999999999999999999999"])
@pytest.mark.parametrize("field", ["start", "stop", "step"])
@pytest.mark.parametrize("kind", ["grid", "random"])
def test_a_range_of_numbers_out_of_bounds_is_refused(number: str, field: str, kind: str) -> None:
    axis = {"name": "load", "start": 1, "stop": 10, "step": 1, field: number}
    design = {"axes": [axis]} if kind == "grid" else {"axes": [axis], "count": 4}
    assert f"axes[0].{field}: {number} is too large or too small" in problem_of({kind: design}, {"length": 1})


def test_a_range_with_too_many_steps_is_refused() -> None:
    axis = {"name": "load", "start": 1, "stop": "1e140", "step": "1e-140"}
    assert f"in more than {2**53} steps" in problem_of({"grid": {"axes": [axis]}}, {"length": 1})


def test_integers_on_a_logarithmic_scale_stay_within_their_bounds() -> None:
    axes = [RoundedInterval(start, 100) for start in range(1, 100)]
    assert [axis.sample(0.0) for axis in axes] == list(range(1, 100))
    assert {axis.sample(1.0) for axis in axes} == {100}
