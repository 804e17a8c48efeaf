"""Changes of a proposal: what each is about, it still is beside the others."""

from itertools import permutations

import pytest

from allocator import Claim, ClaimSpec, ConstraintKind, ConstraintSpec
from extender.answers.explain.node_changes import correct_constraint, drop_constraint
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import EMPTY
from extender.planning.changes import ProposedChange, Target, combined, invasiveness

CONSTRAINTS = tuple(ConstraintSpec(ConstraintKind.MATCH, f"gpu.example.com/{name}") for name in "abcd")
CLAIM = ClaimObject(Claim("default", "c", "uid-c", ClaimSpec(constraints=CONSTRAINTS)), "", "", b"{}")
TARGET = Target(CLAIM, "ResourceClaim default/c")
RIGHT = "gpu.example.com/right"

DROP_0, DROP_1, DROP_3 = (drop_constraint(TARGET, number, CONSTRAINTS[number]) for number in (0, 1, 3))
CORRECT_2 = correct_constraint(TARGET, 2, CONSTRAINTS[2], RIGHT)


@pytest.mark.parametrize("changes", list(permutations([DROP_0, DROP_1, CORRECT_2, DROP_3])))
def test_changes_of_several_constraints_change_the_same_in_any_order(changes: tuple[ProposedChange, ...]) -> None:
    after = combined(changes)(EMPTY.with_claim(CLAIM))
    assert [each.attribute for each in after.claims[CLAIM.key].claim.spec.constraints] == [RIGHT]


def test_a_person_who_carries_out_the_changes_in_the_order_told_removes_the_right_constraints() -> None:
    told = sorted([DROP_0, DROP_3, DROP_1], key=invasiveness)
    assert [change.how.rpartition(", ")[2] for change in told] == [
        f"constraints[{number}]: remove it" for number in (3, 1, 0)
    ]
