"""Prioritize: how well each node suits, as the policy sees it, from what filter found there."""

from collections.abc import Mapping, Sequence

from allocator.outcome import Allocation
from allocator.policy import Policy


def score_nodes(names: Sequence[str], decisions: Mapping[str, Allocation], policy: Policy) -> list[tuple[str, int]]:
    """Node and score, 0 to 10, in the order asked. A node without a decision scores 0, as all do for other pods."""
    scores = policy.scores({name: decisions[name].merit for name in names if name in decisions})
    return [(name, scores.get(name, 0)) for name in names]
