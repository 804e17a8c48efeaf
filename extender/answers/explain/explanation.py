"""An explanation: as a value, as JSON for programs, and as text for people, in the words that users of kubectl know."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

from allocator import DeviceId, LeftOut, Quantity
from allocator.obstacles import Obstacle, ReadValues
from allocator.tools import did_you_mean, nearest, printable
from extender.answers.explain.holders import Holder
from extender.answers.explain.patches import ObjectPatch
from extender.framework.pods.extended_resources import in_words
from extender.kube.api import ObjectKey
from extender.planning.changes import ProposedChange
from extender.tools.table import TextTable, as_html


class Conclusion(Enum):
    """The outcome for the pod or the claim; the value is the word in JSON."""

    FITS = "fits"
    FITS_NOWHERE = "fits nowhere"
    BLOCKED = "blocked"
    BOUND = "bound"
    BOUND_WITHOUT_CLAIMS = "bound without its claims"
    NEEDS_NOTHING = "needs no devices"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class Fallout:
    """Devices that are rejected for one obstacle.

    Attributes:
        values: what the devices have, each with the number of devices, most frequent first.
        devices: the first few.
        holders: who holds those few devices or shares of them, the largest share first.
        exists: some device has the one value that the obstacle's condition wants.
    """

    obstacle: Obstacle
    count: int
    values: tuple[tuple[ReadValues, int], ...] = ()
    devices: tuple[DeviceId, ...] = ()
    holders: tuple[tuple[DeviceId, Holder], ...] = ()
    exists: bool = True


@dataclass(frozen=True, slots=True)
class UnusablePool:
    """A pool whose devices cannot be used, with the number of devices that it publishes."""

    pool: str
    problem: str
    incomplete: bool
    devices: int


@dataclass(frozen=True, slots=True)
class Clash:
    """A constraint that no choice of devices satisfies on one node. Without a constraint, requests compete.

    Attributes:
        values: per request, the values of its free devices, each with the number of devices.
    """

    constraint: str
    node: str
    values: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class RequestReport:
    """All devices, judged for one request or for one alternative of a request.

    Attributes:
        source: kind and name of the object where the request stands.
        asks: the number of devices and their class.
        device_class: the class.
        takes_all: every device of the right kind on a node is asked for.
        considered: the number of devices that the nodes reach, in usable pools.
        free: the number of suitable devices; `examples` are the first few.
        most: the node with the most suitable devices, and their number.
    """

    claim: str
    source: str
    request: str
    asks: str
    need: int
    considered: int
    free: int
    examples: tuple[DeviceId, ...]
    most: tuple[str, int]
    fallouts: tuple[Fallout, ...]
    pools: tuple[UnusablePool, ...]
    device_class: str = ""
    takes_all: bool = False


@dataclass(frozen=True, slots=True)
class NodesByReason:
    """Nodes with the same answer: the reason that filter gives."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejections:
    """Nodes that kube-scheduler itself rejects, apart from devices.

    Attributes:
        groups: the nodes by kube-scheduler's reason.
        with_devices: those of the nodes that have the devices that the pod needs.
    """

    groups: tuple[NodesByReason, ...] = ()
    with_devices: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of nodes."""
        return sum(len(group.nodes) for group in self.groups)


class OfferedDevice(NamedTuple):
    """A device that the pod would get, with its claim, its request, and what the request takes of a shared device."""

    claim: str
    request: str
    device: DeviceId
    consumed: Mapping[str, Quantity] | None = None

    def __str__(self) -> str:
        return f"{self.device}{share_in_words(self.consumed)}"


def share_in_words(consumed: Mapping[str, Quantity] | None) -> str:
    """What a request takes of a shared device, to follow the device: `` (bandwidth: 6G, queues: 2)``."""
    return f" ({', '.join(f'{name}: {amount}' for name, amount in consumed.items())})" if consumed else ""


@dataclass(frozen=True, slots=True)
class FittingNode:
    """A node where the pod fits, with its devices there. Without a score, the pod is bound to the node.

    Attributes:
        left_out: the optional requests that are not served there. Without a reason, the claim is allocated already.
    """

    node: str
    score: int | None
    devices: tuple[OfferedDevice, ...]
    why: str
    left_out: tuple[LeftOut, ...] = ()


class Successor(NamedTuple):
    """The pod that a controller makes in place of a deleted one.

    Attributes:
        pod: the deleted pod.
        controller: makes it again.
        node: where the successor fits then; empty: nowhere.
    """

    pod: str
    controller: str
    node: str

    def __str__(self) -> str:
        then = f"which then fits on node {self.node}" if self.node else "which then waits for devices"
        return f"{self.controller} makes pod {self.pod} again, {then}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that together make the pod fit on a node; they were tried out.

    Attributes:
        devices: the devices that the pod would get, without those that only the changes bring.
        successors: the pods that are made again; those that go before the pod had their turn first.
        patches: of the objects that are edited.
        gates: the feature gates that are turned on.
        commands: make all changes, by kubectl; empty: kubectl cannot make them all.
    """

    changes: tuple[ProposedChange, ...]
    node: str
    devices: tuple[DeviceId, ...]
    successors: tuple[Successor, ...] = ()
    patches: tuple[ObjectPatch, ...] = ()
    gates: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        """What to do, in one line."""
        return " and ".join(change.text for change in self.changes)


class Eviction(NamedTuple):
    """A pod that would be evicted, the node where it runs, and whether its namespace has borrowed its devices."""

    pod: str
    priority: int
    node: str
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class Spared:
    """Holders of devices that are not evicted, all for the same reason: pods, or claims that no pod uses."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreemptionReport:
    """A report of what device preemption would do for the pod.

    Attributes:
        node: where the pod would get devices; empty if evictions do not help.
        victims: the pods that would be evicted; empty if the pod only has to wait until terminating pods are gone.
        violations: how many evictions break a PodDisruptionBudget.
        spared: the other pods and claims that hold devices which the nodes reach.
    """

    node: str
    victims: tuple[Eviction, ...]
    violations: int
    spared: tuple[Spared, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one pod or claim.

    Attributes:
        pod: namespace/name of the pod, or of the claim.
        summary: one line.
        headline: what is wrong, without the name of the pod; empty if nothing is.
        cause: why the pod cannot be placed on any node; it may have several lines.
        advice: what to do for a pod that cannot be placed.
        nodes: that have not the devices, or cannot be decided; without those that kube-scheduler rejects.
        notes: more facts, each a sentence without a full stop.
        policy: the policy that compares the places; empty without places.
        preemption: None if preemption is off, or if it does not concern the pod.
        words: for each request of a special claim, the words by which people know the request.
        subject: what is explained: ``pod`` or ``claim``.
        all_tried: no limit kept a change from being tried. Each proposal was tried in any case.
    """

    pod: str
    verdict: Conclusion
    summary: str
    cause: str = ""
    headline: str = ""
    advice: str = ""
    notes: tuple[str, ...] = ()
    nodes: tuple[NodesByReason, ...] = ()
    rejections: Rejections = Rejections()
    requests: tuple[RequestReport, ...] = ()
    clashes: tuple[Clash, ...] = ()
    places: tuple[FittingNode, ...] = ()
    policy: str = ""
    preemption: PreemptionReport | None = None
    proposals: tuple[Proposal, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    all_tried: bool = True
    subject: str = "pod"

    def __str__(self) -> str:
        """The whole explanation, with ended lines. Line breaks in names and messages are escaped."""
        return "".join(f"{printable(in_words(line, self.words))}\n" for line in _lines(self))

    def __repr__(self) -> str:
        """One line."""
        return f"<Explanation of {self.subject} {self.pod}: {printable(self.summary)}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the outcome, the reasons of the nodes, and the proposals."""
        rows = [(self.subject, self.pod), ("outcome", self.summary)]
        rows += [("to do", self.advice)] if self.advice else []
        rows += [("fits on", f"{each.node}: {', '.join(map(str, each.devices))}") for each in self.places]
        rows += [(_counted(len(each.nodes), "node"), each.reason) for each in (*self.nodes, *self.rejections.groups)]
        for number, each in enumerate(self.proposals, 1):
            changes = "; ".join(change.text for change in each.changes)
            rows.append((f"proposal {number}", f"{changes}. Then it fits on {each.node}."))
        cells = [(name, in_words(text, self.words)) for name, text in rows]
        return as_html(TextTable(("what", "answer"), cells))

    @property
    def is_of_one_node(self) -> bool:
        """Whether only one node was examined."""
        return sum(len(group.nodes) for group in self.nodes) + len(self.places) + self.rejections.count == 1


# --- text ----------------------------------------------------------------------------------------------------

MAX_NAMED: Final = 5
"""Nodes, values and holders that are named in one place."""


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
        yield f"  {fallout.count} {fallout.obstacle.text}{_rejected_values(fallout)}"
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


def _rejected_values(fallout: Fallout) -> str:
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


# --- names ---------------------------------------------------------------------------------------------------

_MOST_COMPARED: Final = 2000
"""Names, those next to the wanted one in the order of the alphabet. To compare more takes too long."""


def unknown_pod(key: ObjectKey, known: Iterable[ObjectKey]) -> str:
    """A pod does not exist; names the pod with devices that was probably meant.

    Args:
        key: of the pod.
        known: the pods with devices.
    """
    others = list(known)
    elsewhere = sorted(other.namespace for other in others if other.name == key.name)
    if elsewhere:
        meant = f"{nearest(key.namespace, elsewhere) or elsewhere[0]}/{key.name}"
    else:
        names = sorted(other.name for other in others if other.namespace == key.namespace)
        place = bisect_left(names, key.name)
        near = nearest(key.name, names[max(0, place - _MOST_COMPARED // 2) : place + _MOST_COMPARED // 2])
        meant = near and f"{key.namespace}/{near}"
    return f"pod {key} does not exist{did_you_mean(meant)}"


def needs_no_devices(key: ObjectKey) -> str:
    """A pod exists and needs no devices."""
    return f"pod {key} needs no devices: its devices do not restrict the choice of a node"


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
