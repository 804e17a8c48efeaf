"""The best of the nodes that will do: to score a few hundred costs the scheduler less than to score thousands."""

from collections import Counter
from collections.abc import Mapping

from allocator.outcome import Merit
from allocator.policy import Policy


def best(merits: Mapping[str, Merit], most: int, policy: Policy) -> Mapping[str, Merit]:
    """The nodes that score highest, in the order given.

    Among equals those that come first: the scheduler asks in an order that goes round the zones.

    Args:
        merits: of the nodes that will do.
        most: how many at most.
        policy: whose scores decide.
    """
    if len(merits) <= most:
        return merits
    kinds = {id(merit): merit for merit in merits.values()}  # many nodes share one
    scores = policy.scores(kinds)
    least, room = _least(Counter(map(id, merits.values())), scores, most)
    chosen: dict[str, Merit] = {}
    for name, merit in merits.items():
        score = scores[id(merit)]
        if score > least:
            chosen[name] = merit
        elif score == least and room:
            chosen[name] = merit
            room -= 1
    return chosen


def _least(counts: Counter[int], scores: Mapping[int, int], most: int) -> tuple[int, int]:
    """The lowest score that is still among the best, and how many nodes of it are."""
    by_score: Counter[int] = Counter()
    for kind, count in counts.items():
        by_score[scores[kind]] += count
    room = most
    for score in sorted(by_score, reverse=True):
        if by_score[score] >= room:
            return score, room
        room -= by_score[score]
    return 0, room
