"""Reasons about annotations are short and printable: filter tells them for each node, and any user can write them."""

import pytest

from allocator import ClaimSpec
from allocator.model.optional import optional_problem
from extender.cluster.objects.claims import ALLOCATION_MODE, IMMEDIATE, PRIORITY, mode_problem
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, read_membership
from extender.framework.pods.policy import policy_problem

HOSTILE = "\x1b[31m\n" + "x" * 200_000
LONGEST = 400


def group_problem(annotations: dict[str, str]) -> str:
    found = read_membership(annotations, "")
    return "" if found is None else found.problem


REASONS = {
    "allocation mode": lambda: mode_problem({ALLOCATION_MODE: HOSTILE}),
    "priority of a claim": lambda: mode_problem({ALLOCATION_MODE: IMMEDIATE, PRIORITY: HOSTILE}),
    "optional requests": lambda: optional_problem(ClaimSpec(optional=(HOSTILE,))),
    "name of a group": lambda: group_problem({GROUP: HOSTILE, GROUP_SIZE: "2"}),
    "size of a group": lambda: group_problem({GROUP: "g", GROUP_SIZE: HOSTILE}),
    "policy": lambda: policy_problem(HOSTILE),
}


@pytest.mark.parametrize("annotation", REASONS)
def test_reason_about_an_annotation_is_short_and_printable(annotation: str) -> None:
    reason = REASONS[annotation]()
    assert reason.isprintable()
    assert 0 < len(reason) <= LONGEST
