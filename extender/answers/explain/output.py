"""An explanation as JSON for programs: the same facts as the text, with the causes by name."""

from allocator import DeviceId
from extender.answers.explain.explanation import (
    Clash,
    Explanation,
    Fallout,
    FittingNode,
    OfferedDevice,
    PreemptionReport,
    Proposal,
    RequestReport,
)


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
        "text": str(explanation),
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
