"""Selectors: compiled once, remembered by what they read, typed in and out."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from weakref import ReferenceType, ref

import pytest

from allocator import AttributeValue, Device, DeviceId, Quantity, Selectors, Version
from allocator.cel import CompileError, Environment, EvaluationError, Kind
from tests.kit.cycles import errors_in_cycles

DEVICE = Device(
    DeviceId("gpu.example.com", "pool", "gpu-0"),
    attributes={
        "d/yes": True,
        "d/one": 1,
        "d/text": "fish",
        "d/version": Version.parse("1.2.3"),
        "d/texts": ("a", "b"),
    },
    quantities={"d/memory": Quantity.parse("1Gi")},
)


def attributes(**values: AttributeValue) -> Device:
    return replace(DEVICE, attributes={f"d/{name}": value for name, value in values.items()})


def test_a_selector_matches_or_not() -> None:
    selectors = Selectors()
    assert selectors.matches('device.driver == "gpu.example.com"', DEVICE) is True
    assert selectors.matches('device.attributes["d"].text == "bird"', DEVICE) is False


@pytest.mark.parametrize("expression", ["1", "device.driver", "quantity('1')", "device.attributes", "[true]"])
def test_a_selector_that_can_be_no_bool_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError, match="must evaluate to bool or the unknown type, not"):
        Selectors().matches(expression, DEVICE)


def test_a_selector_that_turns_out_to_be_no_bool_fails() -> None:
    with pytest.raises(EvaluationError, match="CEL result of type string could not be converted to bool"):
        Selectors().matches('device.attributes["d"].text', DEVICE)


def test_an_error_is_the_same_each_time() -> None:
    selectors = Selectors()
    texts = set()
    for _ in range(3):
        with pytest.raises(CompileError) as caught:
            selectors.matches("device.nothing", DEVICE)
        texts.add(str(caught.value))
    assert len(texts) == 1


COSTLY = '[1, 2].exists(x, device.attributes["d"].one == x)'
"""An expression whose result is worth remembering."""


class Local:
    """Something that a caller has at hand."""


def test_a_remembered_error_holds_nothing_of_its_callers() -> None:
    selectors = Selectors()

    def call() -> ReferenceType[Local]:
        local = Local()
        with suppress(CompileError):
            selectors.reads("(")
        return ref(local)

    assert [call()(), call()()] == [None, None]


@pytest.mark.parametrize(
    "expression",
    [
        COSTLY.replace("== x", "== device.attributes['d'].missing"),
        "device.attributes['d'].missing == 'x'",
        "quantity(device.attributes['d'].text).isInteger()",
        "[1, 2].exists(x, ip(device.attributes['d'].text).family() == x)",
        "semver(device.attributes['d'].text).major() == 1",
        "dyn(device.attributes['d'].one).exists(x, x == 1)",
        "[device.attributes['d'].text, dyn(1)].all(x, quantity(x).isInteger())",
    ],
)
def test_nothing_of_a_failure_stays_until_garbage_is_collected(expression: str) -> None:
    """Its frames would hold who asked, with a whole search."""
    selectors = Selectors()
    with suppress(EvaluationError):
        selectors.matches(expression, DEVICE)
    with errors_in_cycles() as found:
        for number in range(3):
            with suppress(EvaluationError):
                selectors.matches(expression, attributes(one=number, text=f"fish {number}"))
                pytest.fail("it does not fail")
    assert found == []


def test_results_are_remembered_by_what_was_read_with_its_type() -> None:
    selectors = Selectors()
    assert selectors.reads(COSTLY).attributes == ("d/one",)
    for one, expected in ((1, True), (True, False), (3, False), ("1", False), (2, True), (1, True)):
        assert selectors.matches(COSTLY, attributes(one=one)) is expected
    with pytest.raises(EvaluationError, match="no such key: one"):
        selectors.matches(COSTLY, attributes())


def test_a_failure_is_remembered_too_because_it_can_cost_as_much_as_the_limit_allows() -> None:
    selectors, looks = Selectors(), Counter[str]()
    expression = 'lists.range(100000).all(x, x >= 0) && lists.range(100000).all(x, x != device.attributes["d"].one - 2)'

    def expired() -> bool:
        looks["clock"] += 1
        return False

    counts = []
    for _ in range(3):
        with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
            selectors.matches(expression, DEVICE, expired)
        counts.append(looks["clock"])
    assert counts[0] > 0
    assert counts == [counts[0]] * 3


@pytest.mark.parametrize(
    ("expression", "devices"),
    [
        (
            '["a"].all(x, x in device.attributes["d"].list)',
            [(("a",), True), (("b",), False), (("a", "b"), True)],
        ),
        (
            '[1].all(x, device.attributes["d"].list.exists(y, y == x))',
            [((1,), True), ((True,), False), (("1",), False)],
        ),
    ],
)
def test_lists_are_remembered_by_their_elements(expression: str, devices: list[tuple[tuple[int, ...], bool]]) -> None:
    selectors = Selectors()
    for _ in range(2):
        for value, expected in devices:
            device = replace(DEVICE, attributes={"d/list": value})
            assert selectors.matches(expression, device) is expected


def test_the_format_of_a_quantity_matters_where_it_is_seen() -> None:
    selectors, expression = Selectors(), '[1].all(x, device.capacity["d"].memory.isInteger())'
    sizes = {"1Ei": False, "1152921504606846976": False, "1Gi": True, "1073741824": True}
    for text, expected in sizes.items():
        device = replace(DEVICE, quantities={"d/memory": Quantity.parse(text)})
        assert selectors.matches(expression, device) is expected


def test_long_expressions_take_the_room_of_many_short_ones() -> None:
    selectors = Selectors(max_text=2000)
    long = [f'device.driver != "{"a" * 1500}" && {n} > 0' for n in (1, 2)]
    short = [f"{n} > 0" for n in range(1, 40)]
    assert all(selectors.matches(each, DEVICE) for each in (*short, *long))
    assert [each for each in (*short, *long) if selectors.are_quick([each])] == [long[1]]


def test_forgetting_changes_no_answer() -> None:
    selectors = Selectors(max_text=100, max_results=2)
    for number in (*range(10), *range(10)):
        for wanted in range(4):
            expression = f'[{wanted}].exists(x, device.attributes["d"].one == x)'
            assert selectors.matches(expression, attributes(one=number)) is (number == wanted)


def test_results_that_depend_on_many_values_take_the_room_of_many_others() -> None:
    selectors = Selectors(max_results=1_000)
    names = [f"a{number}" for number in range(30)]
    read = " && ".join(f'device.attributes["d"].{name} == 0' for name in names)
    expression = f"{read} && lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))"
    assert selectors.is_costly(expression)
    for number in range(100):
        selectors.matches(expression, attributes(**{**dict.fromkeys(names, 0), "a0": number}))
    assert len(selectors._results) + len(selectors._results._old) <= 1_000 // 31


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("true", True),
        ("1 + 1", 2),
        ('"a" + "b"', "ab"),
        ('semver("1.0.0")', Version.parse("1.0.0")),
        ("[1, 2]", (1, 2)),
        ('[semver("1.0.0")]', (Version.parse("1.0.0"),)),
        ("[]", ()),
        ('device.attributes["d"].texts', ("a", "b")),
        ('device.attributes["d"].one', 1),
        ('device.driver + "/" + device.attributes["d"].text', "gpu.example.com/fish"),
    ],
)
def test_a_derived_attribute_has_a_value(expression: str, value: AttributeValue) -> None:
    derived = Selectors().derive(expression, DEVICE)
    assert derived == value
    assert type(derived) is type(value)


@pytest.mark.parametrize("expression", ["1.5", "null", "2u", 'quantity("1")', "device.attributes", "[[1]]", "{'a': 1}"])
def test_a_derived_attribute_of_another_type_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError, match="must evaluate to a primitive scalar"):
        Selectors().derive(expression, DEVICE)


def test_new_derived_attributes_are_lists_only_with_the_feature() -> None:
    new = Environment(Kind.NEW, list_attributes=False)
    with pytest.raises(CompileError, match=r"not list\(int\)"):
        Selectors(new).derive("[1]", DEVICE)
    assert Selectors(replace(new, list_attributes=True)).derive("[1]", DEVICE) == (1,)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("dyn(1u)", "unsupported CEL return type"),
        ("dyn(null)", "unsupported CEL return type"),
        ("[dyn([1])]", "unsupported list element type"),
        ('[dyn("a"), dyn(1)]', "expected list element at index 1 to be string, got int64"),
        ("[dyn(1), dyn(true)]", "expected list element at index 1 to be int, got bool"),
        ('device.attributes["d"].nothing', "no such key: nothing"),
    ],
)
def test_a_derived_attribute_fails_at_run_time(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        Selectors().derive(expression, DEVICE)
