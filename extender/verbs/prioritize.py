"""Prioritize: how well each node suits, as the policy sees it, from what filter found there."""

from collections.abc import Sequence
from itertools import repeat

from allocator import Policy
from extender.verbs.merits import NOTHING, Merits


def score_nodes(names: Sequence[str], merits: Merits, policy: Policy) -> Sequence[int]:
    """A score, 0 to 10, for each node in the order asked. One without merit has 0, as all have for other pods."""
    if not merits:
        return [0] * len(names)
    codes = merits.codes_of(names)
    scores = policy.scores({code: merits.kinds[code] for code in set(codes) if code != NOTHING})
    return list(map(scores.get, codes, repeat(0)))
