"""Expressions over devices: what they see, what they cost, what they read, and what features change."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from allocator import Device, DeviceId, Quantity, Version
from allocator.cel import CompileError, Environment, EvaluationError, Kind, Reads, compile_expression

DRIVER = "gpu.example.com"
DEVICE = Device(
    DeviceId(DRIVER, "pool", "gpu-0"),
    attributes={
        f"{DRIVER}/model": "a100",
        f"{DRIVER}/index": 3,
        f"{DRIVER}/nvlink": True,
        f"{DRIVER}/version": Version.parse("550.54.15"),
        f"{DRIVER}/links": ("l0", "l1"),
        f"{DRIVER}/empty": "",
        "other.example.com/model": "x",
    },
    quantities={f"{DRIVER}/memory": Quantity.parse("80Gi"), "other.example.com/bandwidth": Quantity.parse("100G")},
    allow_multiple_allocations=True,
)
ENVIRONMENT = Environment()
CAPACITY, LISTS = "consumable capacity", "list attributes"

# In the tables, @ stands for the attributes and # for the capacity of the driver's domain.
RESULTS = {
    'device.driver == "gpu.example.com"': (True, 4),
    'device.driver != "gpu.example.com"': (False, 4),
    'device.driver == ""': (False, 2),
    'device.driver in ["a", "gpu.example.com"]': (True, 2),
    "device.driver in []": (False, 0),
    'device.driver.startsWith("gpu") && device.driver.endsWith(".com")': (True, 6),
    '@.model == "a100"': (True, 5),
    '@["model"] == "a100"': (True, 5),
    '@.empty == ""': (True, 4),
    "@.model == 1": (False, 5),
    "@.nvlink == 1": (False, 5),
    "@.index == 3u": (True, 5),
    "@.index > 2.5": (True, 5),
    "@.nvlink && @.index == 4": (False, 9),
    "@.nvlink || @.index == 4": (True, 4),
    '@.version.isGreaterThan(semver("550.0.0"))': (True, 6),
    '#.memory.compareTo(quantity("40Gi")) > 0': (True, 7),
    '#["memory"] == quantity("81920Mi")': (True, 6),
    'device.capacity["other.example.com"].bandwidth.isLessThan(quantity("1T"))': (True, 6),
    "has(@.model)": (True, 3),
    "has(@.nothing)": (False, 3),
    "!has(@.nothing) || @.nothing == 1": (True, 4),
    '"model" in @': (True, 4),
    '"nothing" in #': (False, 4),
    '"gpu.example.com" in device.attributes': (True, 3),
    '"unknown.example.com" in device.attributes': (False, 3),
    'device.attributes["unknown.example.com"].size() == 0': (True, 5),
    "size(device.attributes) == 2": (True, 4),
    "device.attributes == device.attributes": (True, 5),
    '@[?"nothing"].orValue("none") == "none"': (True, 4),
    '@.?model.orValue("none") == "a100"': (True, 5),
    'cel.bind(a, @, a.model == "a100" && a.index == 3)': (True, 9),
    "@.all(k, k.size() < 20)": (True, 3 + 6 * 6 + 1),
    '@.links.exists(l, l == "l1")': (True, None),
    '@.links.includes("l1") && @.model.includes("a100")': (True, 8),
    "2 in @.links": (False, 5),
    "@.nothing == 1 || true": (True, 5),
    "false && @.nothing == 1": (False, 0),
    '@.model == "a100" ? @.nvlink : @.nothing': (True, 8),
    "[1, 2, 3].filter(x, x > 1).size() == 2": (True, 35),
    "device.allowMultipleAllocations": (True, 2),
    "!(!device.allowMultipleAllocations)": (True, 4),
    "!!device.allowMultipleAllocations": (True, 2),
    '"%s is long enough".format(["x"]).startsWith("x is long")': (True, 3),
    'format.uuid().validate("x").hasValue()': (True, 20),
    "[1, 2].map(x, 0) == [0, 0]": (True, 6),
    "[1, 2].map(x, x) == [1, 2]": (True, 28),
    'type(device.driver) == type("")': (True, 4),
    "#.memory != dyn(1)": (True, 5),
    "[3, 1, 2].sort() == [1, 2, 3]": (True, 30),
    "@.links.sort().size() > 0": (True, 7),
    "@.links.distinct().reverse().size() > 0": (True, None),
}

FAILURES = {
    "@.nothing": ("no such key: nothing", 4),
    '@.nothing == "x"': ("no such key: nothing", 5),
    '#.nothing.compareTo(quantity("1")) >= 0': ("no such key: nothing", 7),
    'device.attributes["unknown.example.com"].model == "x"': ("no such key: model", 5),
    "@.nothing || @.empty == 'x'": ("no such key: nothing", 8),
    "@.model > 1": ("no such overload", 5),
    "@.model && true": ("no such overload", 4),
    "@.index / 0 == 0": ("division by zero", 6),
    "!@.model": ("no such overload", 5),
    "[@.nothing] == []": ("no such key: nothing", None),
    "@.model.more == 1": ("no such overload", None),
    "@.version == 'a'": ("no such overload", 5),
    "[1][@.nothing] == 1": ("no such key: nothing", 6),
    '@.nothing.matches("a")': ("no such key: nothing", 4),
    '@.nothing.indexOf("a") == 0': ("no such key: nothing", 5),
    "@.nothing.isGreaterThan(@.version)": ("no such key: nothing", 4),
    '#.nothing.add(quantity("1")).isInteger()': ("no such key: nothing", 7),
}


def expand(expression: str) -> str:
    domain = f'["{DRIVER}"]'
    return expression.replace("@", f"device.attributes{domain}").replace("#", f"device.capacity{domain}")


@pytest.mark.parametrize(("expression", "value", "cost"), [(text, *rest) for text, rest in RESULTS.items()])
def test_expression_yields_value_at_cost(expression: str, value: bool, cost: int | None) -> None:
    program = compile_expression(expand(expression), ENVIRONMENT)
    measured = program.measure(DEVICE)
    assert measured.error is None
    assert measured.value is value
    assert program.evaluate(DEVICE) is value
    assert cost is None or measured.cost == cost


@pytest.mark.parametrize(("expression", "message", "cost"), [(text, *rest) for text, rest in FAILURES.items()])
def test_expression_fails_with_message_at_cost(expression: str, message: str, cost: int | None) -> None:
    program = compile_expression(expand(expression), ENVIRONMENT)
    measured = program.measure(DEVICE)
    assert measured.error is not None
    assert measured.error.message == message
    assert cost is None or measured.cost == cost
    with pytest.raises(EvaluationError) as caught:
        program.evaluate(DEVICE)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("expression", "new", "stored", "feature"),
    [
        ("device.allowMultipleAllocations", False, True, CAPACITY),
        ('@.links.includes("l0")', False, True, LISTS),
        ("@.links.exists(l, l == 'l0')", False, True, LISTS),
        ("@.links.size() == 2", True, True, LISTS),
    ],
)
def test_new_expression_may_use_only_enabled_features(expression: str, new: bool, stored: bool, feature: str) -> None:
    off = Environment(Kind.NEW, consumable_capacity=False, list_attributes=False)
    on = Environment(Kind.NEW, consumable_capacity=feature == CAPACITY, list_attributes=feature == LISTS)
    cases = {off: new, on: True, replace(off, kind=Kind.STORED): stored}
    for environment, compiles in cases.items():
        if compiles:
            assert compile_expression(expand(expression), environment).evaluate(DEVICE) is True
        else:
            with pytest.raises(CompileError):
                compile_expression(expand(expression), environment)


READS = {
    "true": Reads(),
    'device.driver == "x" && device.allowMultipleAllocations': Reads(driver=True, allow_multiple_allocations=True),
    '@.model == "x" || has(@.index)': Reads(attributes=(f"{DRIVER}/index", f"{DRIVER}/model")),
    '"memory" in # && #["memory"].isInteger()': Reads(capacities=(f"{DRIVER}/memory",)),
    "@.?model.hasValue()": Reads(attributes=(f"{DRIVER}/model",)),
    "cel.bind(a, @, a.model == a.index)": Reads(attributes=(f"{DRIVER}/index", f"{DRIVER}/model")),
    "cel.bind(a, @, a.size() == 1)": Reads(everything=True),
    "[1].all(x, @.index == x)": Reads(attributes=(f"{DRIVER}/index",)),
    "@.all(k, k != 'x')": Reads(everything=True),
    "@[device.driver] == 1": Reads(everything=True),
    "dyn(device).driver == 'x'": Reads(everything=True),
}


@pytest.mark.parametrize(("expression", "reads"), READS.items())
def test_reads_are_the_attributes_and_capacities_of_the_text(expression: str, reads: Reads) -> None:
    assert compile_expression(expand(expression), ENVIRONMENT).reads == reads


def test_program_can_run_in_many_threads_at_once() -> None:
    program = compile_expression(expand("[1, 2, 3].map(x, x + @.index).filter(x, x > @.index + 1)"), ENVIRONMENT)
    devices = [replace(DEVICE, attributes={f"{DRIVER}/index": number}) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(program.evaluate, devices))
    assert results == [(number + 2, number + 3) for number in range(200)]


def test_compiling_keeps_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    compile_expression("[1].all(x, x > 0)", ENVIRONMENT)
    assert sys.getrecursionlimit() == limit


def test_evaluations_of_a_program_share_no_state() -> None:
    program = compile_expression(expand("[1, 2].map(x, x + @.index)"), ENVIRONMENT)
    first = program.evaluate(DEVICE)
    other = replace(DEVICE, attributes={f"{DRIVER}/index": 10})
    assert program.evaluate(other) == (11, 12)
    assert first == program.evaluate(DEVICE) == (4, 5)
