"""The answer to a question, each pod today and then: as values, as text for terminals, and as JSON for programs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from allocator.tools import JSON, printable
from extender.answers.explain.explanation import OfferedDevice, PreemptionReport, placed_as_json, preemption_as_json
from extender.answers.explain.made_up_nodes import MadeUpNode, node_as_json
from extender.tools.table import TextTable, as_html

MOST_PREEMPTIONS: Final = 10
"""Different requests for which evictions are looked for: those of pods that the question names come first."""


class WaitReason(Enum):
    """Why a pod waits."""

    PENDING = "pending"
    NEW = "new"
    """It does not exist."""
    DRAINED = "drained"
    """It leaves a drained node."""


class Difference(Enum):
    """The difference of a pod's fate from today's. The order is that of the answer."""

    LOSES = "loses its place"
    GAINS = "gets a place"
    MOVES = "moves"
    OTHER_DEVICES = "other devices"
    UNKNOWN = "not worked out"
    """There was not enough time."""
    WAITS = "waits"
    SAME = "as today"


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a pod: where it runs, or why it waits.

    Attributes:
        node: empty if the pod waits.
        reasons: each with the number of nodes that it is told of; 0: it is told of the pod.
    """

    node: str = ""
    devices: tuple[OfferedDevice, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod today and then.

    Attributes:
        today: None if the pod does not exist.
        then: None if there was not enough time to find out.
        caution: why it is not as simple as that; empty if it is.
        preemption: who would be evicted for it then; None if preemption does not concern it, or was not looked at.
    """

    pod: str
    origin: WaitReason
    priority: int
    is_edited: bool
    today: Fate | None
    then: Fate | None
    caution: str = ""
    preemption: PreemptionReport | None = None

    @property
    def is_told(self) -> bool:
        """Whether the question names the pod, or its fate differs from today, as far as that is known."""
        if self.difference in (Difference.WAITS, Difference.SAME):
            return self.is_named
        return self.difference is not Difference.UNKNOWN

    @property
    def is_named(self) -> bool:
        """Whether the question is about the pod."""
        return self.is_edited or self.origin is not WaitReason.PENDING

    @property
    def difference(self) -> Difference:
        """The difference from today."""
        before, after = self.today or Fate(), self.then
        if after is None:
            return Difference.UNKNOWN
        if before.node == after.node:
            if not after.node:
                return Difference.WAITS
            return Difference.SAME if before.devices == after.devices else Difference.OTHER_DEVICES
        if not (before.node and after.node):
            return Difference.GAINS if after.node else Difference.LOSES
        return Difference.MOVES


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The answer to a what-if: pods that run and pods that wait, then and today.

    Attributes:
        pods: those that wait today or then, those that matter most first.
        staying: pods that stay on drained nodes, each with the reason.
        unmodeled: conditions that kube-scheduler checks and the extender does not know, in words.
        unexamined: pods that wait, and for which nobody looked who would be evicted.
        notes: what else is to be known.
        picture: the devices of the new nodes, as `extender.answers.observe.fleet.Fleet.document` has them.
    """

    pods: tuple[PodAnswer, ...]
    nodes: tuple[MadeUpNode, ...] = ()
    drained: tuple[str, ...] = ()
    staying: tuple[tuple[str, str], ...] = ()
    unmodeled: tuple[str, ...] = ()
    unexamined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    picture: Mapping[str, JSON] = field(default_factory=dict)

    def __str__(self) -> str:
        """The whole answer, with ended lines. Line breaks in names and messages are escaped."""
        return "".join(f"{printable(line)}\n" for line in _lines(self))

    def __repr__(self) -> str:
        """One line."""
        return f"<WhatIfAnswer: {printable(summary(self))}>"

    def _repr_html_(self) -> str:
        """A table for notebooks: a row for each pod."""
        rows = [(each.pod, _place(each.today), _place(each.then), each.difference.value) for each in self.pods]
        return as_html(TextTable(("pod", "today", "then", "difference"), rows))


NOTHING_WRITTEN = "Nothing was written: this is computed from the cluster as it is known now."

_NAMED = 5
_WORDS = {
    Difference.LOSES: "would lose {} place",
    Difference.GAINS: "would get a place",
    Difference.MOVES: "would move",
    Difference.OTHER_DEVICES: "would get other devices",
    Difference.UNKNOWN: "had no turn in time",
    Difference.WAITS: "would still wait",
    Difference.SAME: "would get a place, as today",
}


def _lines(answer: WhatIfAnswer) -> Iterator[str]:
    yield summary(answer)
    yield NOTHING_WRITTEN
    told = [each for each in answer.pods if each.is_told] or [each for each in answer.pods if each.then is not None]
    for pod in told:
        yield ""
        yield from _pod_lines(pod)
    for difference in (Difference.UNKNOWN, Difference.WAITS, Difference.SAME):
        names = [each.pod for each in answer.pods if each.difference is difference and each not in told]
        if names:
            yield ""
            yield f"{_counted(len(names))} {_words(difference, len(names))}: {', '.join(names)}"
    if answer.unexamined:
        yield ""
        yield f"{unexamined(answer)}: {', '.join(answer.unexamined)}"
    for node in answer.nodes:
        yield ""
        yield from _node_lines(node)
    if answer.drained:
        yield ""
        yield f"Drained: {', '.join(answer.drained)}"
        yield from (f"  pod {pod} stays: {reason}" for pod, reason in answer.staying)
    if answer.unmodeled or answer.notes:
        yield ""
        yield from (f"Note: {note}." for note in answer.notes)
    if answer.unmodeled:
        yield f"Not looked at: {', '.join(answer.unmodeled)}."


def summary(answer: WhatIfAnswer) -> str:
    """The numbers of pods by fate, in one line."""
    counts = Counter(each.difference for each in answer.pods)
    if not counts:
        return "No pod waits for devices, today or then."
    return "; ".join(f"{_counted(counts[each])} {_words(each, counts[each])}" for each in Difference if counts[each])


def unexamined(answer: WhatIfAnswer) -> str:
    """The number of pods for which nobody looked who would be evicted, and what a person can do."""
    return (
        f"Who would be evicted is not known for {_counted(len(answer.unexamined))}: an answer looks for it for at most "
        f"{MOST_PREEMPTIONS} different requests, and only in its time (the explanation of a pod says it for today)"
    )


def _place(fate: Fate | None) -> str:
    if fate is None:
        return "-"
    if not fate.node:
        return ", ".join(f"{number} {reason}" if number else reason for reason, number in fate.reasons) or "waits"
    return " ".join([fate.node, *map(str, fate.devices)])


def _words(difference: Difference, pods: int = 1) -> str:
    return _WORDS[difference].format("its" if pods == 1 else "their")


def _counted(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _pod_lines(each: PodAnswer) -> Iterator[str]:
    kind = {WaitReason.NEW: "new pod", WaitReason.DRAINED: "drained pod", WaitReason.PENDING: "pod"}[each.origin]
    verdict, then = _words(each.difference), each.then or Fate()
    if each.today is None:
        verdict = "would get a place" if then.node else "would wait"
    yield f"{kind} {each.pod}{' (edited)' if each.is_edited else ''} {verdict}"
    if each.today is not None and each.difference not in (Difference.SAME, Difference.WAITS):
        yield from _fate_lines("today", each.today)
    if each.difference is Difference.WAITS and each.today is not None and each.today.reasons != then.reasons:
        yield from _fate_lines("today", each.today)
    yield from _fate_lines("then", then)
    if each.caution:
        yield f"  but {each.caution}"
    if each.preemption is not None and each.preemption.node:
        yield f"  {_evictions(each.preemption)}"


def _fate_lines(when: str, fate: Fate) -> Iterator[str]:
    if fate.node:
        devices = ", ".join(f"{each.request}: {each}" for each in fate.devices)
        yield f"  {f'{when}:':6} node {fate.node}{f' with {devices}' if devices else ''}"
        return
    shown = [f"{nodes} node{'' if nodes == 1 else 's'}: {why}" if nodes else why for why, nodes in fate.reasons]
    left = len(shown) - _NAMED
    more = f"; and {left} more reason{'' if left == 1 else 's'}" if left > 0 else ""
    yield f"  {f'{when}:':6} waits{': ' if shown else ''}{'; '.join(shown[:_NAMED])}{more}"


def _evictions(report: PreemptionReport) -> str:
    if not report.victims:
        return f"on node {report.node} it would fit once terminating pods are gone"
    names = ", ".join(f"{each.pod} (priority {each.priority})" for each in report.victims)
    return f"dra-extender would evict {names} for it on node {report.node}"


def _node_lines(node: MadeUpNode) -> Iterator[str]:
    origin = f" ({node.origin})" if node.origin else ""
    devices = f"{node.devices} devices, {node.stranded} of its own untouched" if node.devices else "no devices"
    yield f"new node {node.name}{origin}: {devices}"
    yield from (f"  {pod}: {', '.join(map(str, devices))}" for pod, devices in node.pods)


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
        "text": str(answer),
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
