"""Prioritize: how well each node suits, as the policy sees it, from what filter found there."""

from collections.abc import Mapping, Sequence

from allocator.outcome import Merit
from allocator.policy import Policy


def score_nodes(names: Sequence[str], merits: Mapping[str, Merit], policy: Policy) -> list[tuple[str, int]]:
    """Node and score, 0 to 10, in the order asked. A node without merit scores 0, as all do for other pods."""
    if not merits:
        return [(name, 0) for name in names]
    found = [(name, merits.get(name)) for name in names]
    scores = policy.scores({id(merit): merit for _, merit in found if merit is not None})  # many nodes share one
    return [(name, scores.get(id(merit), 0)) for name, merit in found]
