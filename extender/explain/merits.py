"""Why one node suits better than another, in words."""

from collections.abc import Iterable, Mapping

from allocator import Merit, Policy


def why_here(merit: Merit, others: Iterable[Merit], policy: Policy) -> str:
    """How an allocation compares with the allocations on other nodes."""
    every = list(others)
    if len(every) == 1:
        return ""
    parts = []
    if len({each.optional for each in every}) > 1:
        best = merit.optional == max(each.optional for each in every)
        parts.append("the most optional requests" if best else "fewer optional requests")
    if len({each.preference for each in every}) > 1:
        best = merit.preference == max(each.preference for each in every)
        parts.append("the most preferred alternatives" if best else "less preferred alternatives")
    if policy.why is None:
        return "; ".join(parts) or f"the policy {policy.name} ranks nodes by nothing else"
    return "; ".join([*parts, *policy.why(merit, every)]) or "no node is better than another"


def ranking(scores: Mapping[str, int]) -> list[str]:
    """Nodes, the best first."""
    return sorted(scores, key=lambda node: (-scores[node], node))
