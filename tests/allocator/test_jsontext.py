"""JSON texts of any depth and with any number: read, and written as they were."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import allocation_to_json, parse_claim
from allocator.tools.jsontext import DEEPEST, Verbatim, dumps, exact, loads

DEPTHS = (1, 199, 200, 201, 400, 900, 1100, 4900, 10_000)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(begin: str, end: str, depth: int, core: str = "1") -> str:
    return begin * depth + core + end * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("begin", "end"), [("[", "]"), ('{"a":', "}"), ('["]",{"}":', "},[]]"), (r'[{"\"[\\":[[],"{\\",', r"]},1.5]")]
)
def test_json_of_any_depth_is_read_and_written(begin: str, end: str, depth: int) -> None:
    levels = sum(end.count(bracket) - end.count(other) for bracket, other in ("][", "}{"))
    text = nested(begin, end, -(-depth // levels))
    assert dumps(loads(text)) == text


@pytest.mark.parametrize("begin", ["[", '{"a":', '{"parameters":[', '{"parameters":'])
def test_a_text_with_more_levels_than_an_api_server_takes_is_refused_before_they_are_built(begin: str) -> None:
    text = begin * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"more than {DEEPEST} levels"):
            loads(text)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@given(value=values, depth=st.sampled_from((0, 201, 1500)))
def test_what_is_written_is_read(value: object, depth: int) -> None:
    read = loads(nested("[", "]", depth, json.dumps(value)))
    for _ in range(depth):
        (read,) = read
    assert read == value


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
@pytest.mark.parametrize("depth", [1, 1500])
def test_numbers_that_python_cannot_hold_stay_text(number: str, depth: int) -> None:
    text = nested("[", "]", depth, number)
    assert dumps(loads(text)) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud800"', "\ufffd"),
        (r'"\udc00x"', "\ufffdx"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\\ud800"', r"\ud800"),
        (r'"\u00e9"', "é"),
    ],
)
def test_half_of_a_surrogate_pair_is_no_character(text: str, value: str) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1 2]",
        "[NaN]",
        '{"a"}',
        "]",
        "[" * 2000,
        "[" * 2000 + "]" * 1999,
        "[" * 1000 + "]" * 1001,
        "[" * 1500 + "NaN" + "]" * 1500,
        "[" * 1500 + "1 2" + "]" * 1500,
        "[" * 1500 + "}" * 1500,
        '{"parameters":{',
        "[" * 1500 + '"' + r"\"" * 100_000,
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several libraries
        loads(text)


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":[1.5,null,true,"é"]}', "[]"])
def test_a_text_that_would_be_written_the_same_is_its_value(text: str) -> None:
    assert exact(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"a":1e2}', '{"a":1.10}', r'{"a":"\u003c"}', '{"a":1,"a":2}', "[" * 1500 + "]" * 1500]
)
@pytest.mark.parametrize("depth", [0, 1500])
def test_opaque_parameters_that_would_be_written_otherwise_stay_text(text: str, depth: int) -> None:
    whole = f'{{"opaque":{{"driver":"x","parameters":{text}}},"deep":{nested("[", "]", depth)}}}'
    read = loads(whole)
    assert read["opaque"]["parameters"] == Verbatim(text)
    assert dumps(read) == whole


def test_opaque_parameters_of_many_levels_stay_text() -> None:
    """As many on each Python; brackets in strings are no levels."""
    most, more = nested("[", "]", 500), nested("[", "]", 501)
    assert [exact(most), exact(f'{{"a":"{more}"}}')] == [json.loads(most), {"a": more}]
    assert exact(more) == Verbatim(more)


def test_other_parameters_are_values() -> None:
    assert loads(r'{"x\"parameters":{"a": 1},"parameters":{"a":1}}') == {
        'x"parameters': {"a": 1},
        "parameters": {"a": 1},
    }


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":1e2}', r'{"a":"\u003c"}', nested("[", "]", 4900)])
def test_parameters_of_claims_are_handed_on_as_they_were_read(text: str) -> None:
    config = f'{{"source":"FromClaim","opaque":{{"driver":"x","parameters":{text}}}}}'
    claim = parse_claim(
        loads(
            '{"apiVersion":"resource.k8s.io/v1","metadata":{"name":"c"},'
            f'"status":{{"allocation":{{"devices":{{"config":[{config}]}}}}}}}}'
        )
    )
    assert claim.allocation is not None
    assert f'"parameters":{text}}}' in dumps(allocation_to_json(claim.allocation))
