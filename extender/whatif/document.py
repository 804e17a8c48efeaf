"""An answer as JSON."""

from extender.explain.explanation import OfferedDevice
from extender.explain.made_up_nodes import node_as_json
from extender.explain.output import placed_as_json, preemption_as_json
from extender.whatif.answer import Fate, PodAnswer, WhatIfAnswer
from extender.whatif.text import as_text, unexamined


def as_json(answer: WhatIfAnswer) -> dict[str, object]:
    """The whole answer.

    ``text`` is the one for people. ``picture`` has the devices of new nodes, as ``/console/fleet`` has all devices.
    """
    return {
        "pods": [_pod(each) for each in answer.pods],
        "nodes": [node_as_json(each) for each in answer.nodes],
        "drained": list(answer.drained),
        "staying": [{"pod": pod, "reason": reason} for pod, reason in answer.staying],
        "unmodeled": list(answer.unmodeled),
        "unexamined": {"pods": list(answer.unexamined), "text": unexamined(answer)} if answer.unexamined else None,
        "notes": list(answer.notes),
        "picture": answer.picture,
        "text": as_text(answer),
    }


def _pod(each: PodAnswer) -> dict[str, object]:
    return {
        "pod": each.pod,
        "origin": each.origin.value,
        "priority": each.priority,
        "edited": each.is_edited,
        "difference": each.difference.value,
        "today": None if each.today is None else _fate(each.today),
        "then": None if each.then is None else _fate(each.then),
        "caution": each.caution,
        "preemption": preemption_as_json(each.preemption),
    }


def _fate(fate: Fate) -> dict[str, object]:
    return {
        "node": fate.node or None,
        "devices": _devices(fate.devices),
        "reasons": [{"reason": reason, "nodes": nodes} for reason, nodes in fate.reasons],
    }


def _devices(devices: tuple[OfferedDevice, ...]) -> list[dict[str, object]]:
    return [placed_as_json(each) for each in devices]
