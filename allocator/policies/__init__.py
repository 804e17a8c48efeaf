"""Policies, each in one module: order of devices, shortcut for one device, and scores of nodes."""

from collections.abc import Mapping
from typing import Final

from allocator.policies.best_fit import BEST_FIT
from allocator.policies.first_fit import FIRST_FIT
from allocator.policies.policy import MAX_SCORE, Policy, Scores, View

POLICIES: Final[Mapping[str, Policy]] = {policy.name: policy for policy in (FIRST_FIT, BEST_FIT)}

__all__ = ["BEST_FIT", "FIRST_FIT", "MAX_SCORE", "POLICIES", "Policy", "Scores", "View"]
