"""Prioritize: how well each node suits, as the policy sees it, from what filter found there."""

from collections.abc import Mapping, Sequence
from itertools import repeat

from allocator.outcome import Merit
from allocator.policy import Policy


def score_nodes(names: Sequence[str], merits: Mapping[str, Merit], policy: Policy) -> Sequence[int]:
    """A score, 0 to 10, for each node in the order asked. One without merit has 0, as all have for other pods.

    There are hundreds of nodes, and many share a merit: what is done for each of them is done in C.
    """
    if not merits:
        return [0] * len(names)
    found = list(map(merits.get, names))
    keys = list(map(id, found))
    kinds = dict(zip(keys, found, strict=True))
    scores = policy.scores({key: merit for key, merit in kinds.items() if merit is not None})
    return list(map(scores.get, keys, repeat(0)))
