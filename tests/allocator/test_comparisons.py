"""A condition that a device does not meet is written with the nearest constant that the device meets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import AttributeValue, Quantity, Selectors, Version
from allocator.obstacles.obstacle import WHOLE, RemedyKind
from allocator.obstacles.unmet_conditions import rewritten
from allocator.tools.spelling import hint, is_misspelled
from tests.allocator.worlds import DRIVER, device

OWN = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'
MODE, INDEX, VERSION = f"{OWN}.mode", f"{OWN}.index", f"{OWN}.version"
V1, V2 = Version.parse("1.4.2"), Version.parse("2.0.0")
FORTY = Quantity.parse("40Gi")


@pytest.mark.parametrize(
    ("condition", "name", "value", "text", "written"),
    [
        (f'{MODE} == "flex"', "mode", "Flex", 'write "Flex" instead of "flex"', f'{MODE} == "Flex"'),
        (f'"flex"=={MODE}', "mode", "Flex", 'write "Flex" instead of "flex"', f'"Flex"=={MODE}'),
        (f"{MODE} in ['felx', 'b']", "mode", "flex", 'write "flex" instead of "felx"', f"{MODE} in [\"flex\", 'b']"),
        (f'{MODE} == "3g"', "mode", "1g", "ask for mode 1g instead of 3g", f'{MODE} == "1g"'),
        (f'{MODE} == "z"', "mode", 'a"\\\n', 'ask for mode a"\\\n instead of z', f'{MODE} == "a\\"\\\\\\n"'),
        (f'{MODE} in ["3g", "2g"]', "mode", "1g", "accept mode 1g, too,", f'{MODE} in ["3g", "2g", "1g"]'),
        (f"{INDEX} == 4", "index", 7, "ask for index 7 instead of 4", f"{INDEX} == 7"),
        (f"{INDEX} == -0x4", "index", 7, "ask for index 7 instead of -4", f"{INDEX} == 7"),
        (f"{INDEX} in [4, 5]", "index", 7, "accept index 7, too,", f"{INDEX} in [4, 5, 7]"),
        (f"{INDEX} >= 4", "index", 2, "lower index to 2", f"{INDEX} >= 2"),
        (f"{INDEX} > 4", "index", 2, "lower index to 2", f"{INDEX} >= 2"),
        (f"{INDEX} > 4", "index", 4, "accept index 4, too,", f"{INDEX} >= 4"),
        (f"4 < {INDEX}", "index", 2, "lower index to 2", f"2 <= {INDEX}"),
        (f"{INDEX} < 4", "index", 7, "raise index to 7", f"{INDEX} <= 7"),
        (
            f'{MEMORY}.compareTo(quantity("80Gi")) >= 0',
            "memory",
            FORTY,
            "lower memory to 40Gi",
            f'{MEMORY}.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            f"({MEMORY}.compareTo(quantity('10Gi')) < 0)",
            "memory",
            FORTY,
            "raise memory to 40Gi",
            f'({MEMORY}.compareTo(quantity("40Gi")) <= 0)',
        ),
        (
            f'{MEMORY} == quantity("80Gi")',
            "memory",
            FORTY,
            "ask for memory 40Gi instead of 80Gi",
            f'{MEMORY} == quantity("40Gi")',
        ),
        (
            f'{MEMORY}.isGreaterThan(quantity("80Gi"))',
            "memory",
            FORTY,
            "lower memory to 40Gi",
            f'{MEMORY}.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            f'!{MEMORY}.isGreaterThan(quantity("20Gi"))',
            "memory",
            FORTY,
            "raise memory to 40Gi",
            f'!{MEMORY}.isGreaterThan(quantity("40Gi"))',
        ),
        (
            f'{VERSION}.isLessThan(semver("1.0.0"))',
            "version",
            V1,
            "raise version to 1.4.2",
            f'{VERSION}.compareTo(semver("1.4.2")) <= 0',
        ),
    ],
)
def test_a_comparison_gets_the_value_of_the_device(
    condition: str, name: str, value: object, text: str, written: str
) -> None:
    found = rewritten(condition, name, value)
    assert found is not None
    assert (found.text, found.condition) == (text, written)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (f'{MODE} != "a"', "a"),
        (f'{MODE}.startsWith("a")', "b"),
        (f'{MODE} >= "b"', "a"),
        (f'"a" in {MODE}', ("b",)),
        (f"{MODE} in []", "b"),
        (f'{MODE} == "a" || {MODE} == "c"', "b"),
        (f"{INDEX} == true", False),
        (f"{INDEX} == 4u", 5),
        (f'{INDEX} == "4"', 4),
        (f'{MEMORY} == quantity("much")', FORTY),
        (f'{VERSION} == semver("v2", true)', V1),
        (f"{MODE} ==", "a"),
    ],
)
def test_what_compares_with_no_constant_of_the_devices_type_is_not_rewritten(condition: str, value: object) -> None:
    assert rewritten(condition, "mode", value) is None


@pytest.mark.parametrize(
    ("condition", "near", "far"),
    [
        (f"{INDEX} >= 80", 79, 40),
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', Quantity.parse("79Gi"), FORTY),
        (f'{VERSION}.compareTo(semver("3.0.0")) >= 0', V2, V1),
        (f'{VERSION} == semver("1.4.3")', V1, Version.parse("1.5.3")),
        (f'{MODE} == "2g.20gb"', "2g.10gb", "whole"),
    ],
)
def test_the_nearer_value_weighs_less(condition: str, near: object, far: object) -> None:
    one, other = rewritten(condition, "it", near), rewritten(condition, "it", far)
    assert one is not None
    assert other is not None
    assert one.weight < other.weight < WHOLE


VALUES: dict[str, st.SearchStrategy[AttributeValue]] = {
    "index": st.integers(-(2**63), 2**63 - 1),
    "mode": st.text(max_size=8),
    "version": st.sampled_from((V1, V2, Version.parse("1.0.0-rc.1+build"))),
}
SHAPES = {
    "index": ("{} == 3", "{} > 3", "3 >= {}", "{} in [3]"),
    "mode": ('{} == "x"', '{} in ["x", "y"]'),
    "version": ('{}.isGreaterThan(semver("1.9.0"))', 'semver("1.9.0") == {}', '!{}.isLessThan(semver("1.9.0"))'),
}


@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_a_device_meets_the_rewritten_condition(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    found = rewritten(data.draw(st.sampled_from(SHAPES[name])).format(f"{OWN}.{name}"), name, value)
    assert found is not None
    assert Selectors().matches(found.condition, device("d", {name: value}))


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("flex", "Flex"),
        ("NVIDIA A100", "nvidia-a100"),
        ("memroy", "memory"),
        ("colour", "color"),
        ("gpus", "gpu"),
        ("worker1", "worker-1"),
        ("pciRoot", "pcieRoot"),
        ("exmaple.com", "example.com"),
        ("tesls", "tesla"),
        ("parentUUIDs", "parentUUID"),
    ],
)
def test_a_slip_is_a_misspelling(word: str, name: str) -> None:
    assert is_misspelled(word, name)
    assert is_misspelled(name, word)
    assert hint(word, [name]) == f"; did you mean {name}?"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("h100", "a100"),
        ("1g.5gb", "1g.10gb"),
        ("gpu-1", "gpu-2"),
        ("mig-1-1", "mig-11"),
        ("gpu-large", "gpu-small"),
        ("team-a", "team-b"),
        ("cpu", "gpu"),
        ("cpuIndex", "gpuIndex"),
    ],
)
def test_a_name_of_the_same_shape_is_another_name(word: str, name: str) -> None:
    assert not is_misspelled(word, name)
    assert "did you mean" not in hint(word, [name])


def test_similar_names_are_listed() -> None:
    assert hint("h100", ["a100", "h200", "nic"]) == "; similar names: h200, a100"


def test_a_name_unlike_all_others_has_no_hint() -> None:
    assert hint("fpga", ["gpu", "nic"]) == ""


def test_the_kind_of_a_misspelling_is_a_correction() -> None:
    found = rewritten(f'{MODE} == "flex"', "mode", "Flex")
    assert found is not None
    assert found.kind is RemedyKind.CORRECT
