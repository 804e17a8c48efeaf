"""Why one node suits better than another, in words."""

from collections.abc import Collection, Iterable, Mapping

from allocator import FIRST_FIT, Format, Merit, Policy, Quantity

_BINARY_FROM = 1024 * 10**9


def why_here(merit: Merit, others: Iterable[Merit], policy: Policy) -> str:
    """What speaks for an allocation and differs between nodes."""
    every = list(others)
    if len(every) == 1:
        return ""
    parts = []
    if len({each.preference for each in every}) > 1:
        best = merit.preference == max(each.preference for each in every)
        parts.append("the most preferred alternatives" if best else "less preferred alternatives")
    if policy is FIRST_FIT:
        return "; ".join(parts) or "the policy first-fit ranks nodes by nothing else"
    for name in sorted({name for each in every for name in each.capacity}):
        amounts = {each.capacity.get(name, 0) for each in every}
        if len(amounts) > 1:
            parts.append(_amount(name, merit.capacity.get(name, 0), amounts))
    if len({each.broken for each in every}) > 1:
        parts.append("breaks up a whole device" if merit.broken else "breaks up no whole device")
    if len({each.free for each in every}) > 1:
        parts.append(f"leaves {merit.free:.0%} of its pools free")
    return "; ".join(parts) or "no node is better than another"


def _amount(name: str, nano: int, amounts: Collection[int]) -> str:
    least, most = _shown(min(amounts)), _shown(max(amounts))
    return f"devices with {_shown(nano)} of {name.rpartition('/')[2]} (all nodes: {least} to {most})"


def _shown(nano: int) -> str:
    """In binary units where those are round."""
    binary = nano >= _BINARY_FROM and nano % _BINARY_FROM == 0
    return str(Quantity.from_nano(nano, Format.BINARY_SI if binary else Format.DECIMAL_SI))


def ranking(scores: Mapping[str, int]) -> list[str]:
    """Nodes, the best first."""
    return sorted(scores, key=lambda node: (-scores[node], node))
