"""The headline of an explanation: what is wrong, in the words of the person who wrote the claim.

It is made of the same facts as the rest of the explanation: of the first request that no node serves alone, what the
devices lack that come closest to it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from allocator.obstacles import Held, condition_in_words
from allocator.reason import NO_MATCH, UNREACHABLE
from extender.answers.explain.explanation import Clash, Fallout, NodesByReason, RequestReport, UnusablePool

_MOST_VALUES: Final = 5
"""Values of devices that the line names."""

_MOST_CAUSES: Final = 3
"""Causes, alternatives or reasons that the line names."""


def headline(
    requests: Sequence[RequestReport], clashes: Sequence[Clash], nodes: Sequence[NodesByReason], cause: str
) -> str:
    """The first line of an explanation of a pod that fits nowhere, without a full stop.

    Args:
        requests: the devices, judged for each alternative of each request.
        clashes: what does not go together.
        nodes: the answers of filter.
        cause: why the pod fails on every node; empty if each node has a reason of its own.
    """
    missing = next((line for each in requests for line in _of_attributes(each)), "")
    if cause:
        return missing or cause.partition("\n")[0]
    by_request = [list(ways) for _, ways in groupby(requests, _request)]
    unserved = [ways for ways in by_request if not any(map(_is_served, ways))]
    if unserved:
        where = f"request {unserved[0][0].request.partition('/')[0]}: " if len(by_request) > 1 else ""
        return where + _of_alternatives(unserved[0])
    if clashes:
        return _of_clash(clashes[0])
    return _of_nodes(nodes)


def _of_alternatives(ways: Sequence[RequestReport]) -> str:
    if len(ways) == 1:
        return _lack(ways[0])
    return _listed([f"{way.request.partition('/')[2]}: {_lack(way)}" for way in ways])


def _request(report: RequestReport) -> tuple[str, str]:
    """The request of an alternative."""
    return report.claim, report.request.partition("/")[0]


def _is_served(report: RequestReport) -> bool:
    """Whether one node has devices for the alternative, if it does not matter what others take."""
    lacks_some = report.takes_all and any(each.obstacle.cause.is_temporary for each in report.fallouts)
    return report.most[1] >= report.need and not lacks_some


def _lack(report: RequestReport) -> str:
    """What keeps an alternative from all nodes."""
    others = [each for each in report.fallouts if each.obstacle.cause in (NO_MATCH, UNREACHABLE)]
    close = [each for each in report.fallouts if each not in others]
    which = _which([each for each in others if each.obstacle.cause is NO_MATCH and not each.obstacle.of_class])
    parts = [_close(each) for each in close] + [_of_pool(each) for each in report.pools]
    if report.takes_all and report.free:
        return f"all devices{which} are needed: {_listed(parts)}"
    if report.free:
        node, most = report.most
        rest = f"; {_listed(parts)}" if parts else ""
        return f"no node has {report.need} free devices{which}: at most {most} ({node}), {report.free} in all{rest}"
    if close:
        return (_single(close[0], which) if len(parts) == 1 else "") or f"no free device{which}: {_listed(parts)}"
    if report.pools and not others:
        return _listed(parts)
    rest = f"; {_listed(parts)}" if parts else ""
    return _of_kind(report, others) + rest


def _single(fallout: Fallout, which: str) -> str:
    """The line if all devices of the right kind are in use, or have too little of something; empty for others."""
    of = fallout.obstacle
    if of.held is Held.WHOLE:
        return f"{_every(fallout.count)}{which} {'is' if fallout.count == 1 else 'are'} {of.text}"
    if of.held is not Held.SHARED or not fallout.values:
        return ""
    return f"no device has {of.asked or of.need} of {of.subject} free{of.rounding} ({_values([fallout])})"


def _every(count: int) -> str:
    return "the only device" if count == 1 else f"all {count} devices"


def _of_kind(report: RequestReport, others: Sequence[Fallout]) -> str:
    """No device is of the kind that is asked for, or none is within reach."""
    if not report.considered:
        return f"the nodes have no devices for class {report.device_class}"
    unmatched = [each for each in others if each.obstacle.cause is NO_MATCH]
    asked = [each for each in unmatched if not each.obstacle.of_class]
    if asked:
        return f"no device{_which(asked, 'has')}{_values_in_brackets(asked)}"
    if unmatched:
        return f"no device is of class {report.device_class}{_values_in_brackets(unmatched)}"
    return f"no device is {others[0].obstacle.text}" if others else "no device suits"


def _which(unmatched: Sequence[Fallout], verb: str = "with") -> str:
    """What devices need, as `` with model b200 and memory of at least 80Gi``; empty if nothing is asked for."""
    known = [(each, condition_in_words(each.obstacle.condition, _name(each))) for each in unmatched]
    plain = list(dict.fromkeys(words for _, words in known if words))
    other = list(dict.fromkeys(each.obstacle.condition for each, words in known if not words))
    has = [f"{verb} {' and '.join(plain)}"] if plain else []
    meets = [f"{'that meets' if verb == 'with' else 'meets'} {' and '.join(other)}"] if other else []
    return "".join(f" {part}" for part in [" and ".join([*has, *meets])] if part)


def _name(fallout: Fallout) -> str:
    """The only thing that was read of the devices; empty if it is not one thing."""
    read = fallout.values[0][0] if fallout.values else ()
    return read[0][0] if len(read) == 1 else ""


def _values_in_brackets(fallouts: Sequence[Fallout]) -> str:
    """What the devices have, as `` (h100 8000, a100 4000)``."""
    values = _values(fallouts)
    return f" ({values})" if values else ""


def _values(fallouts: Sequence[Fallout]) -> str:
    seen: Counter[str] = Counter()
    several = len({_name(each) for each in fallouts}) > 1 or any(each.obstacle.of_class for each in fallouts)
    for fallout in fallouts:
        for values, count in fallout.values:
            named = [f"{name} {value}" if several or len(values) > 1 else value for name, value in values]
            if named:
                seen[" and ".join(named)] += count
    on = "on " if fallouts and fallouts[0].obstacle.need else ""
    shown = [f"{value} {on}{count}" for value, count in seen.most_common(_MOST_VALUES)]
    more = [f"{len(seen) - len(shown)} other values"] if len(seen) > len(shown) else []
    return ", ".join(shown + more)


def _close(fallout: Fallout) -> str:
    """What keeps devices of the right kind, as ``8 in use``."""
    seen = f" ({values})" if fallout.obstacle.need and (values := _values([fallout])) else ""
    return f"{fallout.count} {fallout.obstacle.text}{seen}"


def _of_pool(pool: UnusablePool) -> str:
    return f"pool {pool.pool} is {'incomplete' if pool.incomplete else 'invalid'}: {pool.problem}"


def _of_attributes(report: RequestReport) -> Iterator[str]:
    """The attributes that a selector reads and that devices lack: the pod fails on every node."""
    for fallout in report.fallouts:
        of = fallout.obstacle
        if of.missing:
            some = fallout.count < report.considered
            lack = f"{fallout.count} of {report.considered} devices lack" if some else "no device has"
            reads = ", which a selector reads without has(...)" if some else ""
            yield f"{lack} attribute {of.missing}{reads}{of.meant}"


def _of_clash(clash: Clash) -> str:
    if not clash.constraint:
        return f"the requests compete for the same devices of node {clash.node}"
    kind, _, attribute = clash.constraint.partition(": ")
    counts: Counter[str] = Counter()
    for _, values in clash.values:
        counts.update(dict(values))
    seen = ", ".join(f"{value} {count}" for value, count in counts.most_common(_MOST_VALUES))
    alike = {"matchAttribute": "one", "distinctAttribute": "different"}.get(kind, kind)
    noun = "value" if alike == "one" else "values"
    return f"the free devices do not have {alike} {noun} of {attribute} ({seen} on {clash.node})"


def _of_nodes(nodes: Sequence[NodesByReason]) -> str:
    if len(nodes) == 1:
        return nodes[0].reason
    counted = [f"on {len(each.nodes)} {'node' if len(each.nodes) == 1 else 'nodes'}, {each.reason}" for each in nodes]
    return f"no node has all that is needed: {_listed(counted)}" if counted else "no node is left"


def _listed(parts: Iterable[str], separator: str = "; ") -> str:
    """The first few parts, and how many more there are."""
    every = list(parts)
    more = [f"{len(every) - _MOST_CAUSES} more"] if len(every) > _MOST_CAUSES else []
    return separator.join(every[:_MOST_CAUSES] + more)
