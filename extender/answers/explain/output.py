"""An explanation as text for terminals, in the words that kubectl's users know, and as JSON for programs.

The JSON has the same facts as the text, with the causes by name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from allocator import DeviceId
from allocator.obstacles import ReadValues
from allocator.tools import printable
from extender.answers.explain.explanation import (
    Clash,
    Conclusion,
    Eviction,
    Explanation,
    Fallout,
    FittingNode,
    NodesByReason,
    OfferedDevice,
    PreemptionReport,
    Proposal,
    Rejections,
    RequestReport,
)
from extender.framework.pods.extended_resources.requests import in_words

MAX_NAMED: Final = 5
"""Nodes, values and holders that are named in one place."""


def as_text(explanation: Explanation) -> str:
    """The whole explanation, with ended lines. Line breaks in names and messages are escaped."""
    return "".join(f"{printable(in_words(line, explanation.words))}\n" for line in _lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield explanation.summary
    if not explanation.rejections.groups:
        yield from _advice_lines(explanation)
    yield from (f"Note: {note}." for note in explanation.notes)
    for place in explanation.places:
        yield from _place_lines(place)
    yield from _reason_lines(explanation)
    if explanation.rejections.groups and not explanation.is_of_one_node:
        yield from _rejection_lines(explanation.rejections)
    if explanation.rejections.groups:
        yield from _advice_lines(explanation)
    for block in (
        *(_request_lines(report, explanation.words) for report in explanation.requests),
        *map(_clash_lines, explanation.clashes),
        *([_preemption_lines(explanation.preemption)] if explanation.preemption else []),
        *(
            [_proposal_lines(explanation)]
            if explanation.proposals or (_fits_nowhere(explanation) and explanation.requests and not explanation.advice)
            else []
        ),
    ):
        yield ""
        yield from block


def _fits_nowhere(explanation: Explanation) -> bool:
    return explanation.verdict is Conclusion.FITS_NOWHERE


def _reason_lines(explanation: Explanation) -> Iterator[str]:
    """What filter says of the nodes, or of all of them at once."""
    count = sum(len(group.nodes) for group in explanation.nodes)
    if explanation.cause:
        yield from (f"  {line}" for line in explanation.cause.split("\n") if line not in explanation.summary)
    elif explanation.is_of_one_node:
        told = (group.reason for group in explanation.nodes if group.reason not in explanation.summary)
        yield from (f"  kube-scheduler is told: {reason}" for reason in told)
    elif explanation.nodes:
        none = f"It fits on none of {count + explanation.rejections.count} nodes:"
        yield f"The {explanation.subject} does not fit on the other nodes:" if explanation.places else none
        yield from _node_lines(explanation.nodes)


def _node_lines(groups: Iterable[NodesByReason]) -> Iterator[str]:
    for group in groups:
        yield f"  {_counted(len(group.nodes), 'node')}: {group.reason} ({_named(group.nodes)})"


def _advice_lines(explanation: Explanation) -> Iterator[str]:
    if explanation.advice:
        yield f"To do: {explanation.advice}{'' if explanation.advice.endswith('?') else '.'}"


def _rejection_lines(rejections: Rejections) -> Iterator[str]:
    found = rejections.with_devices
    which = f"; devices for the pod are on {_named(found)}" if found else ""
    yield f"kube-scheduler itself rejects {_counted(rejections.count, 'node')}{which}:"
    yield from _node_lines(rejections.groups)


def _place_lines(place: FittingNode) -> Iterator[str]:
    score = "" if place.score is None else f", score {place.score}"
    yield f"  {place.node}{score}{': ' if place.why else ''}{place.why}"
    for each in place.devices:
        yield f"    claim {each.claim}, request {each.request}: {each}"
    for out in place.left_out:
        why = f": {out.reason}" if out.reason else ""
        yield f"    claim {out.claim}, optional request {out.request} is left out on node {place.node}{why}"


def _request_lines(report: RequestReport, words: Mapping[str, str]) -> Iterator[str]:
    where = "" if report.request in words else f" of {report.source}"
    yield f"Request {report.request}{where}: {report.asks}"
    yield f"  {_counted(report.considered, 'device')} considered, {_free(report)}"
    for fallout in report.fallouts:
        yield f"  {fallout.count} {fallout.obstacle.text}{_seen(fallout)}"
        yield from _holder_lines(fallout)
        if fallout.holders and fallout.count > len(fallout.devices):
            yield f"      and {fallout.count - len(fallout.devices)} more"
    for pool in report.pools:
        state = "incomplete" if pool.incomplete else "invalid"
        yield f"  {pool.devices} more in pool {pool.pool}, which is {state} and not used: {pool.problem}"


def _holder_lines(fallout: Fallout) -> Iterator[str]:
    for device, found in groupby(fallout.holders, key=lambda each: each[0]):
        holders = [holder for _, holder in found]
        yield from (f"      {device}: {holder}" for holder in holders[:MAX_NAMED])
        if len(holders) > MAX_NAMED:
            yield f"      {device}: {_counted(len(holders) - MAX_NAMED, 'more claim')}"


def _free(report: RequestReport) -> str:
    if not report.free:
        return "none suitable"
    node, most = report.most
    named = _named([str(device) for device in report.examples], report.free)
    if most >= report.need:
        return f"{report.free} suitable: {named}"
    return f"{report.free} suitable ({named}), but no node has more than {most} ({node}); {report.need} are needed"


def _seen(fallout: Fallout) -> str:
    """The values that devices were rejected for: ``: model is a100 on 32, h100 on 0``."""
    if not fallout.values or not fallout.values[0][0]:
        return ""
    shown = fallout.values if len(fallout.values) == MAX_NAMED + 1 else fallout.values[:MAX_NAMED]
    more = len(fallout.values) - len(shown)
    rest = [f"{more} other values on {sum(count for _, count in fallout.values[MAX_NAMED:])}"] if more else []
    if fallout.obstacle.need:
        return f"; {', '.join([f'{values[0][1]} on {count}' for values, count in shown] + rest)}"
    if all(len(values) == 1 for values, _ in shown):
        name = shown[0][0][0][0]
        parts = [f"{values[0][1]} on {count}" for values, count in shown] + rest
        nowhere = [] if fallout.exists else [f"{fallout.obstacle.wanted} on 0"]
        return f": {name} is {', '.join(parts + nowhere)}"
    return f": {'; '.join([f'{_pairs(values)} on {count}' for values, count in shown] + rest)}"


def _pairs(values: ReadValues) -> str:
    return " and ".join(f"{name} is {value}" for name, value in values)


def _clash_lines(clash: Clash) -> Iterator[str]:
    if not clash.constraint:
        yield f"Node {clash.node} can serve each request alone, but not all together: they compete for its devices."
        return
    yield f"Node {clash.node} can serve each request alone, but not with the constraint {clash.constraint}"
    for request, values in clash.values:
        yield f"  request {request}: {', '.join(f'{value} on {count}' for value, count in values[:MAX_NAMED])}"


def _preemption_lines(report: PreemptionReport) -> Iterator[str]:
    if not report.node:
        yield "Preemption: no eviction makes the pod fit. These are not evicted:"
    elif not report.victims:
        yield f"Preemption: no pod is evicted. The pod fits on node {report.node} once terminating pods are gone."
    else:
        names = [f"{each.pod} ({_circumstances(each)})" for each in report.victims]
        breaks = f"; evictions that break a PodDisruptionBudget: {report.violations}" if report.violations else ""
        noun = "pod" if len(names) == 1 else "pods"
        yield f"Preemption: to make room on node {report.node}, dra-extender evicts {noun} {_named(names)}{breaks}"
    for each in report.spared:
        yield f"  {_named(each.names)}: {each.reason}"


def _circumstances(each: Eviction) -> str:
    return f"priority {each.priority}, on node {each.node}{', with borrowed devices' if each.borrowed else ''}"


def _proposal_lines(explanation: Explanation) -> Iterator[str]:
    proposals = explanation.proposals
    if proposals:
        yield f"Changes that make the {explanation.subject} fit, the smallest first (each was tried out):"
    else:
        yield f"No change was found that makes the {explanation.subject} fit."
    for number, proposal in enumerate(proposals, 1):
        for index, change in enumerate(proposal.changes):
            first = change.text[:1].upper() + change.text[1:]
            yield f"     and {change.text}" if index else f"  {number}. {first}"
            yield f"       {change.how}"
        with_devices = f" with {_named([str(device) for device in proposal.devices])}" if proposal.devices else ""
        yield f"     Then it fits on {proposal.node}{with_devices}."
        yield from (f"     {successor}." for successor in proposal.successors)
    for immutable in dict.fromkeys(change.immutable for each in proposals for change in each.changes):
        yield from [f"{immutable[:1].upper()}{immutable[1:]}."] if immutable else []
    if not explanation.all_tried:
        yield "Not every change was tried: the search for changes is limited in time, nodes and trials."


def _named(names: Sequence[str], total: int | None = None) -> str:
    """The first few of some names."""
    shown = names[:MAX_NAMED]
    rest = (len(names) if total is None else total) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def as_json(explanation: Explanation) -> dict[str, object]:
    """The whole explanation; ``text`` is the one for people."""
    return {
        explanation.subject: explanation.pod,
        "verdict": explanation.verdict.value,
        "summary": explanation.summary,
        "headline": explanation.headline or None,
        "cause": explanation.cause or None,
        "advice": explanation.advice or None,
        "notes": list(explanation.notes),
        "nodes": [{"reason": group.reason, "nodes": list(group.nodes)} for group in explanation.nodes],
        "rejectedByScheduler": {
            "nodes": [{"reason": group.reason, "nodes": list(group.nodes)} for group in explanation.rejections.groups],
            "withDevices": list(explanation.rejections.with_devices),
        },
        "requests": [_request(report) for report in explanation.requests],
        "clashes": [_clash(clash) for clash in explanation.clashes],
        "places": [_place(place) for place in explanation.places],
        "policy": explanation.policy or None,
        "preemption": preemption_as_json(explanation.preemption),
        "proposals": [_proposal(proposal) for proposal in explanation.proposals],
        "allTried": explanation.all_tried,
        "text": as_text(explanation),
    }


def _request(report: RequestReport) -> dict[str, object]:
    node, most = report.most
    return {
        "claim": report.claim,
        "source": report.source,
        "request": report.request,
        "asks": report.asks,
        "considered": report.considered,
        "free": report.free,
        "freeDevices": [_device(device) for device in report.examples],
        "mostOnOneNode": {"node": node, "devices": most} if node else None,
        "fallouts": [_fallout(fallout) for fallout in report.fallouts],
        "unusablePools": [
            {"pool": pool.pool, "problem": pool.problem, "incomplete": pool.incomplete, "devices": pool.devices}
            for pool in report.pools
        ],
    }


def _fallout(fallout: Fallout) -> dict[str, object]:
    return {
        "cause": fallout.obstacle.cause.name,
        "text": fallout.obstacle.text,
        "need": fallout.obstacle.need or None,
        "count": fallout.count,
        "values": [{"values": dict(values), "devices": count} for values, count in fallout.values if values],
        "devices": [_device(device) for device in fallout.devices],
        "holders": [
            {
                "device": _device(device),
                "claim": holder.claim or None,
                "pods": list(holder.pods),
                "consumedCapacity": dict(holder.share) or None,
            }
            for device, holder in fallout.holders
        ],
    }


def _clash(clash: Clash) -> dict[str, object]:
    return {
        "node": clash.node,
        "constraint": clash.constraint or None,
        "values": {request: dict(values) for request, values in clash.values},
    }


def _place(place: FittingNode) -> dict[str, object]:
    return {
        "node": place.node,
        "score": place.score,
        "why": place.why or None,
        "devices": list(map(placed_as_json, place.devices)),
        "leftOut": [{**each._asdict(), "reason": each.reason or None} for each in place.left_out],
    }


def placed_as_json(device: OfferedDevice) -> dict[str, object]:
    """A device that a pod gets."""
    found: dict[str, object] = {"claim": device.claim, "request": device.request, "device": _device(device.device)}
    if device.consumed is not None:
        found["consumedCapacity"] = {name: str(amount) for name, amount in device.consumed.items()}
    return found


def preemption_as_json(report: PreemptionReport | None) -> dict[str, object] | None:
    """Who would be evicted; None if preemption does not concern the pod."""
    if report is None:
        return None
    return {
        "node": report.node or None,
        "victims": [each._asdict() for each in report.victims],
        "budgetViolations": report.violations,
        "spared": [{"reason": each.reason, "names": list(each.names)} for each in report.spared],
    }


def _proposal(proposal: Proposal) -> dict[str, object]:
    return {
        "changes": [
            {
                "kind": c.kind.name.lower().replace("_", "-"),
                "text": c.text,
                "how": c.how,
                "immutable": c.immutable or None,
                "size": c.size,
            }
            for c in proposal.changes
        ],
        "node": proposal.node,
        "devices": [_device(device) for device in proposal.devices],
        "successors": [
            {"pod": each.pod, "controller": each.controller, "node": each.node or None} for each in proposal.successors
        ],
        "patches": [each.as_json() for each in proposal.patches],
        "settings": {"featureGates": dict.fromkeys(proposal.gates, True)} if proposal.gates else None,
        "commands": list(proposal.commands),
    }


def _device(device: DeviceId) -> dict[str, str]:
    return device._asdict()
