"""The table of checks: its order, and that a check which is not asked would not have spoken."""

import pytest
from hypothesis import given

from allocator import DeviceRequest, Features, Quantity
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
from allocator.model.features import ALL_FEATURES, NO_FEATURES
from allocator.pools import Candidate
from allocator.reason import Cause
from allocator.usage import FREE
from tests.allocator.strategies import Puzzle, puzzles
from tests.allocator.worlds import NODE, SELECTORS, device, pool

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
