"""The table of checks: its order, and that a check which is not asked would not have spoken."""

import pytest
from hypothesis import given

from allocator import NO_RULES, Cause, DeviceRequest, Features, Quantity
from allocator.checks.check import Asked, Situation
from allocator.checks.table import CHECKS, checks_for
from allocator.model.features import ALL_FEATURES, NO_FEATURES
from tests.allocator.strategies import Puzzle, puzzles
from tests.allocator.worlds import SELECTORS

ALL_FIELDS = frozenset(name for check in CHECKS for name in check.fields)
GPU = DeviceRequest("gpu")

TABLE: list[tuple[str, frozenset[str], DeviceRequest, Features, list[Cause]]] = [
    ("plain devices", frozenset(), GPU, ALL_FEATURES, [Cause.IN_USE, Cause.SELECTOR]),
    (
        "devices with everything",
        ALL_FIELDS,
        GPU,
        ALL_FEATURES,
        [
            Cause.IN_USE,
            Cause.SELECTOR,
            Cause.UNREACHABLE,
            Cause.CAPACITY,
            Cause.NODE_OPERATIONS,
            Cause.TAINT,
        ],
    ),
    (
        "without features",
        ALL_FIELDS,
        GPU,
        NO_FEATURES,
        [
            Cause.IN_USE,
            Cause.BINDING_CONDITIONS,
            Cause.SELECTOR,
            Cause.UNREACHABLE,
            Cause.NODE_OPERATIONS,
            Cause.PARTITION,
        ],
    ),
    (
        "a capacity that no device has",
        frozenset(),
        DeviceRequest("gpu", capacity=(("memory", Quantity.parse("1Gi")),)),
        ALL_FEATURES,
        [Cause.IN_USE, Cause.SELECTOR, Cause.CAPACITY],
    ),
]


@pytest.mark.parametrize(
    ("fields", "request_", "features", "causes"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_checks_are_asked_in_upstreams_order(
    fields: frozenset[str], request_: DeviceRequest, features: Features, causes: list[Cause]
) -> None:
    checks = checks_for(fields, request_, NO_RULES, features)
    assert [check.cause for check in checks.all] == causes
    assert [check.cause for check in checks.told] == [*causes[1:], Cause.IN_USE]


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
