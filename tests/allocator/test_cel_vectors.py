"""Recorded CEL cases, where they are at hand; and the command that runs files of cases."""

import json
import math
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import Device, DeviceId
from allocator.cel import CompileError, Environment, EvaluationError, compile_expression
from allocator.cel.equality import compare, equal
from allocator.cel.values import UInt
from tests.conformance import exclusions, language, selectors
from tests.conformance.__main__ import main
from tests.kit.places import ROOT

RECORDED = ROOT.parent / "shared" / "vectors"
recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="recorded cases are kept outside the project")

ACTUAL = {"compileError": "", "match": True, "runtimeError": "", "actualCost": 3}
SELECTOR = {
    "name": "driver",
    "expression": 'device.driver == "a"',
    "envType": "NewExpressions",
    "features": {},
    "device": {"driver": "a"},
    "actual": ACTUAL,
}


@recorded
@pytest.mark.parametrize("name", ["cel", "cel_extra"])
def test_recorded_selectors_agree_with_upstream(name: str) -> None:
    cases = json.loads((RECORDED / f"{name}.json").read_text())
    assert [f"{case['name']}: {why}" for case in cases if (why := selectors.run_case(case)) is not None] == []


@recorded
def test_cel_spec_cases_pass_but_for_those_excluded_by_name() -> None:
    cases = json.loads((RECORDED / "cel-spec.json").read_text())
    excluded = Counter(why for case in cases if (why := exclusions.reason(case)) is not None)
    assert [case for case in cases if exclusions.reason(case) is None and language.failure(case) is not None] == []
    documented = (ROOT / "docs" / "reference" / "cel.md").read_text()
    assert [why for why, count in excluded.items() if f"| {why} | {count} |" not in documented] == []


@recorded
def test_each_case_excluded_by_name_would_fail() -> None:
    cases = json.loads((RECORDED / "cel-spec.json").read_text())
    single = [case for case in cases if exclusions.reason(case) in exclusions.CASES]
    assert len(single) == sum(len(sections) for cases in exclusions.CASES.values() for sections in cases.values())
    assert [case["section"] for case in single if language.failure(case) is None] == []


def test_command_counts_and_names_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.json"
    wrong = {**SELECTOR, "name": "wrong", "actual": {**ACTUAL, "actualCost": 4}}
    plain = {"suite": "s", "name": "n", "section": "x", "expression": "1 + 1", "expected": ["int", 2]}
    path.write_text(json.dumps([SELECTOR, wrong, plain]))
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert "cases.json: 2 passed, 1 failed, 0 skipped" in printed
    assert "FAILED wrong: costs 3, upstream 4" in printed
    path.write_text(json.dumps([SELECTOR]))
    assert main([str(path)]) == 0


@pytest.mark.parametrize("text", ["{", "[{}]", "[1]", '[{"expression": "1"}]'])
def test_command_refuses_a_file_without_cases(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    assert main([str(path)]) == 2


def test_command_without_files_is_an_error() -> None:
    assert main([]) == 2


# Laws of the language, on random expressions.


DEVICE = Device(
    DeviceId("gpu.example.com", "pool", "gpu-0"), attributes={"d/yes": True, "d/no": False, "d/one": 1, "d/text": "a"}
)
ATTRIBUTES = 'device.attributes["d"]'
ATOMS = [f"{ATTRIBUTES}.{name}" for name in ("yes", "no", "one", "missing")] + ["true", "false", "dyn(1) > 0"]

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(UInt),
    st.floats(allow_nan=False),
    st.sampled_from([0, 1, UInt(1), 1.0, 2**53, float(2**53), UInt(2**63), 2.0**63]),
)


def outcome(expression: str) -> object:
    """The value, or that it fails."""
    try:
        return compile_expression(expression, Environment()).evaluate(DEVICE)
    except EvaluationError:
        return "fails"


expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda e: f"!({e})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} ? {p[1]} : {p[2]})"),
        st.lists(inner, min_size=3, max_size=5).map(lambda parts: f"({' && '.join(parts)})"),
        st.lists(inner, min_size=3, max_size=5).map(lambda parts: f"({' || '.join(parts)})"),
    ),
    max_leaves=8,
)


@given(expressions)
def test_counting_cost_changes_no_result(expression: str) -> None:
    program = compile_expression(expression, Environment())
    measured = program.measure(DEVICE)
    if measured.error is None:
        assert program.evaluate(DEVICE) is measured.value
        return
    with pytest.raises(EvaluationError) as caught:
        program.evaluate(DEVICE)
    assert caught.value.message == measured.error.message


@given(expressions, expressions)
def test_and_and_or_are_commutative(left: str, right: str) -> None:
    assert outcome(f"{left} && {right}") == outcome(f"{right} && {left}")
    assert outcome(f"{left} || {right}") == outcome(f"{right} || {left}")


@given(expressions)
def test_decisive_term_absorbs_errors(expression: str) -> None:
    assert outcome(f"{expression} && false") is False
    assert outcome(f"{expression} || true") is True
    assert outcome(f"[{ATTRIBUTES}.yes, {ATTRIBUTES}.no].exists(x, x || {expression})") is True


@given(expressions, expressions)
def test_de_morgan_holds(left: str, right: str) -> None:
    assert outcome(f"!({left} && {right})") == outcome(f"!({left}) || !({right})")


@given(numbers, numbers)
def test_numbers_of_all_types_have_one_order(left: float, right: float) -> None:
    order = compare(left, right)
    assert order is not None
    assert compare(right, left) == -order
    assert equal(left, right) == (order == 0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3))
def test_the_order_of_ints_is_transitive(values: list[int]) -> None:
    for a, b, c in permutations(values):
        if compare(a, b) in (-1, 0) and compare(b, c) in (-1, 0):
            assert compare(a, c) in (-1, 0)


@given(numbers)
def test_nan_has_no_order_and_no_equal(number: float) -> None:
    assert compare(math.nan, number) is None
    assert not equal(number, math.nan)


def exactly(left: int, right: int, operator: str) -> int | None:
    """What it is in unbounded integers, division rounding to zero; None for division by zero."""
    if operator in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[operator]
    if right == 0:
        return None
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if operator == "/" else left - quotient * right


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.sampled_from("+-*/%"))
def test_int_arithmetic_is_exact_or_fails(left: int, right: int, operator: str) -> None:
    measured = compile_expression(f"dyn({left}) {operator} dyn({right})", Environment()).measure(DEVICE)
    exact = exactly(left, right, operator)
    if exact is None or not -(2**63) <= exact < 2**63:
        assert measured.error is not None
    else:
        assert measured.value == exact


def fault(text: str) -> str:
    """What is wrong with it, if anything."""
    try:
        compile_expression(text, Environment())
    except CompileError as error:
        return str(error)
    return ""


@given(st.text(max_size=60))
def test_any_text_compiles_or_says_why(text: str) -> None:
    assert fault(text).encode() is not None


TOKENS = [*"[]{}():,?.a1-!", '"', "'", "b'", "in"]


@given(st.lists(st.sampled_from(TOKENS)))
def test_any_tokens_compile_or_say_why(tokens: list[str]) -> None:
    assert fault("".join(tokens)).encode() is not None


@given(st.text(max_size=30))
def test_escaped_string_literal_yields_its_text(text: str) -> None:
    escaped = "".join(f"\\U{ord(c):08x}" for c in text)
    assert compile_expression(f'"{escaped}"', Environment()).evaluate(DEVICE) == text
