"""The table of checks: its order, and that a check which is not asked would not have spoken."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import (
    GATES,
    Allocation,
    AttributeValue,
    DeviceRequest,
    DeviceTaint,
    Features,
    InvalidClaimError,
    Quantity,
    Request,
    Selectors,
    Version,
    with_gates,
)
from allocator.checks import NO_RULES, DeviceState
from allocator.checks.binding_conditions import BINDING
from allocator.checks.capacity import CAPACITY
from allocator.checks.check import Asked, Check, Refusal, Situation
from allocator.checks.counters import PARTITION
from allocator.checks.in_use import IN_USE
from allocator.checks.matching import MATCHING
from allocator.checks.node_operations import NODE_OPERATIONS
from allocator.checks.placement import PLACEMENT
from allocator.checks.table import CHECKS, checks_for
from allocator.checks.taints import TAINTS
from allocator.model.claims import DerivedAttribute
from allocator.model.features import ALL_FEATURES, NO_FEATURES
from allocator.obstacles.obstacle import WHOLE, RemedyKind
from allocator.obstacles.unmet_conditions import rewritten
from allocator.pools import Candidate
from allocator.reason import Cause
from allocator.tools.spelling import hint, is_misspelled
from allocator.usage import FREE
from tests.allocator.strategies import Puzzle, puzzles
from tests.allocator.worlds import DRIVER, NODE, SELECTORS, World, alternative, claim, device, first_of, pool, q, want

ALL_FIELDS = frozenset(name for check in CHECKS for name in check.fields)
GPU = DeviceRequest("gpu")

TABLE: list[tuple[str, frozenset[str], DeviceRequest, Features, list[Check]]] = [
    ("plain devices", frozenset(), GPU, ALL_FEATURES, [IN_USE, MATCHING]),
    (
        "devices with everything",
        ALL_FIELDS,
        GPU,
        ALL_FEATURES,
        [
            IN_USE,
            MATCHING,
            PLACEMENT,
            CAPACITY,
            NODE_OPERATIONS,
            TAINTS,
        ],
    ),
    (
        "without features",
        ALL_FIELDS,
        GPU,
        NO_FEATURES,
        [
            IN_USE,
            BINDING,
            MATCHING,
            PLACEMENT,
            NODE_OPERATIONS,
            PARTITION,
        ],
    ),
    (
        "a capacity that no device has",
        frozenset(),
        DeviceRequest("gpu", capacity=(("memory", Quantity.parse("1Gi")),)),
        ALL_FEATURES,
        [IN_USE, MATCHING, CAPACITY],
    ),
]


@pytest.mark.parametrize(
    ("fields", "request_", "features", "expected"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_checks_are_asked_in_upstreams_order(
    fields: frozenset[str], request_: DeviceRequest, features: Features, expected: list[Check]
) -> None:
    checks = checks_for(fields, request_, NO_RULES, features)
    assert list(checks.all) == expected
    assert list(checks.told) == [*expected[1:], IN_USE]


@given(puzzles())
def test_a_check_that_is_not_asked_would_not_speak(puzzle: Puzzle) -> None:
    task = puzzle.world.task(*puzzle.claims)
    situation = Situation(task.node, task.taint_rules, task.features, SELECTORS.matches)
    for asking in puzzle.claims:
        for request in (each for requested in asking.spec.requests for each in requested.alternatives):
            asked = Asked(0, asking, "", "", request, ())
            possible = checks_for(ALL_FIELDS, request, task.taint_rules, task.features).all
            for view in task.pools:
                few = checks_for(view.fields, request, task.taint_rules, task.features).all
                for check in set(possible).difference(few):
                    for candidate in view.candidates:
                        used = task.usage.device(candidate.device.id)
                        assert check.speaks(situation, asked, candidate, used) is None


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.cause.name)
def test_a_check_that_may_refuse_a_free_device_says_so_in_words_of_its_own(check: Check) -> None:
    has_gate = check.obstacle is not None and bool(check.obstacle.gate)
    assert check.passes_free or has_gate or check.words is not None


def test_a_check_without_words_is_told_by_its_name() -> None:
    cause = Cause("odd-slot", "no device in an even slot for request {request}", rank=75)
    check = Check(cause, lambda *_: Refusal(cause))
    candidate = Candidate(device("gpu-0"), pool(device("gpu-0"))[0])
    situation = Situation(NODE, NO_RULES, ALL_FEATURES, SELECTORS.matches)
    assert check.state(candidate.device, FREE) is DeviceState.UNUSABLE
    assert check.in_words(situation, candidate, Refusal(cause)) == "rejected by the check odd-slot"


# Every feature can be switched off: claims that need it are errors, devices that need it are passed over.


def without(name: str) -> Features:
    return replace(ALL_FEATURES, **{name: False})


CLAIMS = [
    # feature, a request that needs it, the error
    ("prioritized_list", first_of("gpu", alternative("one")), "has subrequests, the feature DRAPrioritizedList is off"),
    ("admin_access", want("gpu", admin_access=True), "asks for admin access, the feature DRAAdminAccess is off"),
    (
        "consumable_capacity",
        want("gpu", capacity=(("memory", q("1")),)),
        "requests capacity, the feature DRAConsumableCapacity is off",
    ),
    ("consumable_capacity", want("gpu", capacity=()), "requests capacity, the feature DRAConsumableCapacity is off"),
    (
        "derived_attributes",
        want("gpu", derived_attributes=(DerivedAttribute(f"{DRIVER}/x", "1"),)),
        "has derived attributes, the feature DRADerivedAttributes is off",
    ),
]


@pytest.mark.parametrize(("feature", "request_", "message"), CLAIMS)
def test_a_claim_that_needs_a_feature_that_is_off_is_an_error(feature: str, request_: Request, message: str) -> None:
    devices = pool(device("gpu", capacity={"memory": "1"}))
    with pytest.raises(InvalidClaimError) as caught:
        World(devices, features=without(feature)).allocate(claim(request_))
    assert (caught.value.claim, caught.value.request, caught.value.problem) == ("default/claim", "gpu", message)
    assert World(devices).devices(claim(request_)) != []


class TestDevices:
    def test_partitions_are_passed_over(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), device("plain"), counters={"s": {"x": 1}})
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want())) == [["plain"]]
        assert world.devices(claim(want("gpu", 2))) == "not enough free devices for request gpu"
        assert World(slices).devices(claim(want("gpu", 2))) == [["part", "plain"]]

    def test_partitions_of_unknown_counters_are_no_contradiction(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), device("plain"))
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want("a"), want("b"))) == "not enough free devices for request b"

    def test_partitions_are_refused_while_their_feature_is_off(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), counters={"s": {"x": 1}})
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want())) == "partitionable devices are off, request gpu needs them"

    def test_taints_are_ignored(self) -> None:
        slices = pool(device("sick", taints=(DeviceTaint("k", "NoSchedule"),)))
        assert World(slices, features=without("device_taints")).devices(claim(want())) == [["sick"]]

    def test_what_could_be_shared_is_taken_as_a_whole(self) -> None:
        slices = pool(device("gpu", capacity={"memory": "1"}, allow_multiple_allocations=True))
        world = World(slices, features=without("consumable_capacity"))
        answer = world.allocate(claim(want()))
        assert isinstance(answer, Allocation)
        (result,) = answer.results[0].results
        assert (result.share_id, result.consumed_capacity) == (None, None)
        assert world.devices(claim(want("a"), want("b"))) == "not enough free devices for request b"

    def test_compatibility_groups_hide_a_slice(self) -> None:
        grouped = device("gpu", draws={"s": {"x": 1}})
        (draw,) = grouped.consumes_counters
        slices = pool(
            replace(grouped, consumes_counters=(replace(draw, compatibility_groups=("g",)),)), counters={"s": {"x": 1}}
        )
        assert World(slices).devices(claim(want())) == [["gpu"]]
        world = World(slices, features=without("compatibility_groups"))
        assert world.devices(claim(want())) == "resource pool is not usable for request gpu"


def test_gates_have_kubernetes_names() -> None:
    assert set(GATES.values()) == {f.name for f in fields(Features)}
    assert with_gates(NO_FEATURES, dict.fromkeys(GATES, True)) == ALL_FEATURES
    assert with_gates(Features(), {"DRADeviceTaints": False}) == replace(Features(), device_taints=False)
    with pytest.raises(KeyError):
        with_gates(Features(), {"DRAUnheardOf": True})


# A condition that a device does not meet is written with the nearest constant that the device meets.


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
