"""Why one node suits better than another, in words."""

from collections.abc import Iterable, Mapping

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
    parts += [_amount(name, merit.capacity.get(name, 0), every) for name in _differing(every)]
    if len({each.broken for each in every}) > 1:
        parts.append("breaks up a whole device" if merit.broken else "breaks up no whole device")
    if len({each.free for each in every}) > 1:
        parts.append(f"leaves {merit.free:.0%} of its pools free")
    return "; ".join(parts) or "no node is better than another"


def _differing(every: Iterable[Merit]) -> list[str]:
    merits = list(every)
    names = {name for each in merits for name in each.capacity}
    return sorted(name for name in names if len({each.capacity.get(name, 0) for each in merits}) > 1)


def _amount(name: str, nano: int, every: Iterable[Merit]) -> str:
    amounts = [each.capacity.get(name, 0) for each in every]
    least, most = _shown(min(amounts)), _shown(max(amounts))
    return f"devices with {_shown(nano)} of {name.rpartition('/')[2]} (all nodes: {least} to {most})"


def _shown(nano: int) -> str:
    """In binary units where those are round."""
    binary = nano >= _BINARY_FROM and nano % _BINARY_FROM == 0
    return str(Quantity.from_nano(nano, Format.BINARY_SI if binary else Format.DECIMAL_SI))


def ranking(scores: Mapping[str, int]) -> list[str]:
    """Nodes, the best first."""
    return sorted(scores, key=lambda node: (-scores[node], node))
