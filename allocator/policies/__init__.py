"""Policies, one module each. A new policy is one module, and its name here; settings and commands then take it.

If the policy compares a fact that no merit has yet, `allocator.policies.merit` says where the fact goes.

A policy decides by values alone (`Policy`): equal devices and equal merits get equal answers, in each process.
"""

from collections.abc import Mapping
from typing import Final

from allocator.policies.best_fit import BEST_FIT as BEST_FIT
from allocator.policies.first_fit import FIRST_FIT as FIRST_FIT
from allocator.policies.fragmentation import fragmentation as fragmentation
from allocator.policies.leftover import NOTHING_LEFT as NOTHING_LEFT
from allocator.policies.merit import Merit as Merit
from allocator.policies.pack import PACK
from allocator.policies.policy import MAX_SCORE as MAX_SCORE
from allocator.policies.policy import Policy as Policy
from allocator.policies.policy import Scores as Scores
from allocator.policies.reserve import RESERVE
from allocator.policies.spread import SPREAD
from allocator.policies.usable_room import Needs as Needs
from allocator.policies.usable_room import RoomByCpu as RoomByCpu
from allocator.policies.usable_room import Shape as Shape
from allocator.policies.usable_room import UsableRoom as UsableRoom

POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy for policy in (FIRST_FIT, BEST_FIT, SPREAD, PACK, RESERVE, fragmentation())
}
