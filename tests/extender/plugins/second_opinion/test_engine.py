"""cel-python as the second engine: its answers, what it does not check, and how much it may do."""

import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

import celpy
import pytest
from celpy.evaluation import CELEvalError
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Selectors
from allocator.audit import Answer, NotChecked, SecondOpinion
from allocator.cel import CelError
from extender.plugins.second_opinion.engine import LONGEST, CelPython
from extender.plugins.second_opinion.unchecked import MOST_STEPS, Difference, Meter, weight
from extender.plugins.second_opinion.values import device_value
from tests.conformance import expressions
from tests.conformance.selectors import device_of
from tests.extender.plugins.second_opinion.selectors_of_tests import GPU, compared, selectors
from tests.kit.places import ROOT

A: Final = 'device.attributes["gpu.example.com"]'
C: Final = 'device.capacity["gpu.example.com"]'

ANSWERS: Final = {
    'device.driver == "gpu.example.com"': Answer.TRUE,
    f'{A}.model == "h100"': Answer.FALSE,
    f"{A}.index > 2 && {A}.ecc": Answer.TRUE,
    f"{A}.missing == 1": Answer.FAILS,
    f"has({A}.missing)": Answer.FALSE,
    'has(device.attributes["unknown.example.com"].model)': Answer.FALSE,
    f"{A}.missing == 1 || true": Answer.TRUE,
    f'{A}.driverVersion.isGreaterThan(semver("550.0.0"))': Answer.TRUE,
    f"{A}.driverVersion.major() == 550": Answer.TRUE,
    f'{A}.driverVersion.compareTo(semver("550.54.15-rc.1")) > 0': Answer.TRUE,
    'semver("1")== semver("1.0.0")': Answer.FAILS,
    'isSemver("1.0.0") && !isSemver("v1")': Answer.TRUE,
    f'{C}.memory.compareTo(quantity("40Gi")) >= 0': Answer.TRUE,
    f'{C}.memory.isLessThan(quantity("80G"))': Answer.FALSE,
    f'{C}.cores.add(1).sub(quantity("1")).compareTo(quantity("64")) == 0': Answer.TRUE,
    f"{C}.cores.asInteger() == 64 && sign({C}.cores) == 1": Answer.TRUE,
    f'{A}.model in ["h100", "a100"]': Answer.TRUE,
    f'{A}.model.matches("^a[0-9]+$")': Answer.TRUE,
    f'["h100", "a100"].exists(m, m == {A}.model)': Answer.TRUE,
    f'{A}.names.all(n, n.size() == 1) && "a" in {A}.names': Answer.TRUE,
    "[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6]": Answer.TRUE,
    "1 / 0 == 1": Answer.FAILS,
    "3037000500 * 3037000500 > 0": Answer.FAILS,
    "device.allowMultipleAllocations": Answer.FALSE,
}  # fmt: skip

DIFFERENCES: Final[Mapping[Difference, str]] = {
    Difference.BOOL_TEXT: "string(true) == 'true'",
    Difference.TWO_TYPES: f"{A}.index == 3.0",
    Difference.TYPES: f"{A}.names.contains('a')",
    Difference.NEGATIVE_INDEX: "[1, 2][-1] == 2",
    Difference.EMPTY_LIST: "(1 / 0) in []",
    Difference.ERROR_IN_MAP: "'a' in {'a': 1 / 0}",
    Difference.ERROR_IN_MACRO: "[1].map(x, x / 0).size() == 0 || true",
    Difference.HAS_ERROR: f"has({A}.missing.x)",
    Difference.NOT_BOOL: f"true && {A}.index",
    Difference.MACRO_ON_TEXT: f"{A}.model.all(c, true)",
    Difference.NULL_SIZE: "size(dyn(null)) == 0",
    Difference.ZERO_DIVISOR: "1.0 / -0.0 < 0.0",
    Difference.NUMBER_TEXT: "int(' 1') == 1",
    Difference.ROUNDING: "uint(-0.5 * 1.0) == 0u",
    Difference.COMPUTED_QUANTITY: 'quantity("1").add(1) == quantity("2")',
    Difference.LARGE_NUMBER: "- 9223372036854775808 < 0",
    Difference.ESCAPES: r"'\?' == '?'",
    Difference.SHADOWED: "[1].all(size, size == 1)",
}
"""A selector for each difference."""

ONLY_GUARDED: Final = {Difference.COMPUTED_QUANTITY, Difference.SHADOWED}
"""Those that cel-python alone does not show: quantities are none of its own, and the selector above would do."""

LACKS: Final = {
    "sets.contains([1], [1])": "the selector uses sets",
    "'A'.lowerAscii() == 'a'": "the selector uses lowerAscii()",
    "[2, 1].isSorted()": "the selector uses isSorted()",
    "cel.bind(x, 1, x == 1)": "the selector uses bind()",
    "ip('10.0.0.1').family() == 4": "the selector uses family()",
    "cidr('10.0.0.0/8').containsIP('10.0.0.1')": "the selector uses containsIP()",
    "'a1'.find('[0-9]') == '1'": "the selector uses find()",
    "type(1) == int": "the selector uses type()",
    "[1].exists(i, v, v == 1)": "the selector uses exists() with 3 arguments",
    "{'a': 1}[?'a'].hasValue()": "cel-python does not read its syntax",
    "quantity('15e2').isInteger()": "a quantity in an unusual form",
    "semver('v1.0', true).major() == 1": Difference.TYPES.value,
    "device.driver ==": "the selector does not compile",
}

HOSTILE: Final = {
    "texts doubled": '["a"].map(x, x + x)' + ".map(x, x + x)" * 60 + ".size() == 1",
    "lists doubled": "[[1]].map(x, x + x)" + ".map(x, x + x)" * 60 + ".size() == 1",
    "lists in lists": "[dyn(1)].map(x, dyn([x, x]))" + ".map(x, dyn([x, x]))" * 30 + ".size() == 1",
    "what ours does not evaluate": "false && [[1]].map(x, x + x)" + ".map(x, x + x)" * 60 + ".size() == 1",
    "loops in loops": ".all(x, ".join([str([*range(20)])] * 6) + "true" + ")" * 5,
    "a long list": f"{[*range(200)]}.all(x, {[*range(200)]}.exists(y, x + y < 0))",
}


def engine() -> CelPython:
    return CelPython(time.monotonic)


def opinions(selector: str) -> object:
    return SecondOpinion(Selectors(), engine()).opinions(selector, GPU)


@pytest.mark.parametrize(("selector", "answer"), ANSWERS.items())
def test_both_engines_answer(selector: str, answer: Answer) -> None:
    assert opinions(selector) == (answer, answer)


def test_each_difference_has_a_selector_and_a_row_in_the_docs() -> None:
    assert set(DIFFERENCES) == set(Difference)
    page = (ROOT / "docs" / "explanation" / "cel.md").read_text()
    assert [each.value for each in Difference if f"| {each.value} |" not in page] == []


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.name)
def test_what_meets_a_difference_is_not_checked(difference: Difference) -> None:
    assert engine().judge(DIFFERENCES[difference], GPU) == NotChecked(difference.value)


@pytest.mark.parametrize(
    "difference", [each for each in DIFFERENCES if each not in ONLY_GUARDED], ids=lambda each: each.name
)
def test_cel_python_still_differs(difference: Difference) -> None:
    selector, ours = DIFFERENCES[difference], Answer.FALSE
    try:
        ours = Answer.TRUE if Selectors().matches(selector, GPU) else Answer.FALSE
    except CelError:
        ours = Answer.FAILS
    assert alone(selector) is not ours


def alone(selector: str) -> Answer:
    """The answer of cel-python without guards."""
    limit = sys.getrecursionlimit()
    environment = celpy.Environment()
    sys.setrecursionlimit(limit)
    try:
        value: object = environment.program(environment.compile(selector)).evaluate({"device": device_value(GPU)})
    except (CELEvalError, ArithmeticError):
        return Answer.FAILS
    return Answer.TRUE if value else Answer.FALSE


@pytest.mark.parametrize(("selector", "why"), LACKS.items())
def test_what_cel_python_lacks_is_named(selector: str, why: str) -> None:
    assert opinions(selector)[1] == NotChecked(why)  # type: ignore[index]


@pytest.mark.parametrize("selector", HOSTILE.values(), ids=HOSTILE)
def test_no_selector_keeps_the_engine_busy(selector: str) -> None:
    began = time.thread_time()
    assert isinstance(engine().judge(selector, GPU), NotChecked)
    assert time.thread_time() - began < 5  # 0.1 s each; without bounds, some would not end


def test_a_step_is_counted_before_it_is_done_and_the_clock_is_looked_at() -> None:
    times = iter([0.0, 2.0])
    meter = Meter(lambda: next(times))
    meter.begin()
    with pytest.raises(Exception, match="too much work"):
        meter.spend(65)
    with pytest.raises(Exception, match="too much work"):
        meter.spend(MOST_STEPS)


def test_what_stands_twice_weighs_twice() -> None:
    pair = celpy.celtypes.ListType([celpy.celtypes.StringType("a" * 128)] * 2)
    assert weight(celpy.celtypes.ListType([pair, pair])) == 1 + 2 * (1 + 2 * 3)


def test_long_and_deep_selectors_are_not_read() -> None:
    assert engine().judge("true" + " " * LONGEST, GPU) == NotChecked("the selector is too long")
    deep = "(" * 120 + "true" + ")" * 120
    assert engine().judge(deep, GPU) == NotChecked("the selector nests too deep for the second engine")


def test_the_process_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    limit, level = sys.getrecursionlimit(), logging.root.level
    engine().judge(f"{A}.index + 'a' == 1", GPU)
    assert (sys.getrecursionlimit(), logging.root.level, logging.root.manager.disable) == (limit, level, 0)
    assert caplog.records == []


@settings(max_examples=int(os.environ.get("SECOND_OPINION_EXAMPLES", "300")), deadline=None)
@given(st.integers(0, 10**9))
def test_random_selectors_raise_no_false_alarm(seed: int) -> None:
    case = expressions.random_case(seed)
    ours, theirs = SecondOpinion(Selectors(), ENGINE).opinions(case["expression"], device_of(case["device"]))
    assert isinstance(theirs, NotChecked) or theirs is ours


ENGINE: Final = engine()


def test_no_selector_of_the_tests_raises_a_false_alarm() -> None:
    results, _, different = compared()
    assert different == []
    assert results.total() >= 2 * len(selectors())
    checked = results.total() - results["not checked"]
    assert checked > 0.4 * results.total()  # more than half where the recorded cases are at hand
