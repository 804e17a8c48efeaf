"""The autoscaler's JSON: requests to values, answers to bytes; names in the style of kube-scheduler's extender/v1.

``filter`` and ``prioritize`` have the very requests and answers of the scheduler's verbs (`extender.verbs.json.wire`);
the others are described in docs/reference/api.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from allocator import JSON, InvalidObjectError, driver_name, shown
from extender.autoscaler.readiness.node_readiness import Readiness
from extender.autoscaler.scale_up.demand import Room, parse_demand, parse_room
from extender.autoscaler.scale_up.expanders import EXPANDERS
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod, Plan
from extender.config.wording import suggestion
from extender.state.objects.nodes import NodeObject, parse_node_object
from extender.state.objects.pods import Pod
from extender.verbs.json import wire
from extender.verbs.json.body import WireError, as_object, as_pod, mismatch, name_of, optional, required, root_of, text

DEFAULT_EXPANDER: Final = "least-waste"

MOST_DRIVERS: Final = 64
"""Drivers in the scope of one session."""


@dataclass(frozen=True, slots=True)
class SimulatedArgs:
    """ExtenderArgs of a simulation: the nodes may not exist.

    Attributes:
        asked: as the scheduler's verbs have it.
        nodes: those that were sent as a whole; none where only names were sent.
    """

    asked: wire.FilterArgs
    nodes: tuple[NodeObject, ...]


@dataclass(frozen=True, slots=True)
class SelectedArgs:
    """A pod, and the node that the autoscaler has found for it."""

    pod: Pod
    node: NodeObject


@dataclass(frozen=True, slots=True)
class EstimateArgs:
    """Pending pods, and the groups that can grow; ``expander`` is one of `EXPANDERS`."""

    pods: tuple[PendingPod, ...]
    groups: tuple[NodeGroup, ...]
    expander: str = DEFAULT_EXPANDER


def decode_simulated(body: bytes) -> SimulatedArgs:
    """ExtenderArgs, of filter and prioritize.

    Raises:
        WireError: the body is something else.
    """
    return simulated(wire.decode_filter(body))


def simulated(asked: wire.FilterArgs) -> SimulatedArgs:
    """A scheduler's call, asked in a simulation.

    Raises:
        WireError: a node can't be read.
    """
    sent = asked.nodes or {}
    nodes = tuple(_node(item, f"Nodes.items[{index}]") for index, item in enumerate(sent.values()))
    return SimulatedArgs(replace(asked, pod=_identified(asked.pod)), nodes)


def decode_selected(body: bytes) -> SelectedArgs:
    """NodeSelected: ``Pod`` and ``Node``, both whole.

    Raises:
        WireError: the body is something else.
    """
    root = root_of(body)
    pod = as_pod(required(root, "Pod", dict), "Pod")
    node = required(root, "Node", dict)
    name_of(node, "Node")
    return SelectedArgs(_identified(pod), _node(node, "Node"))


def decode_ready(body: bytes) -> str:
    """NodeReady: the node's name, in ``NodeName``.

    Raises:
        WireError: the body is something else.
    """
    return text(root_of(body), "NodeName")


def decode_start(body: bytes) -> frozenset[str] | None:
    """Start: an empty body, or an object; ``Drivers`` names the drivers that the session judges. None: all drivers.

    Raises:
        WireError: the body is something else; there is no driver, or too many; a name is not one of a driver.
    """
    names = optional(root_of(body), "Drivers", list) if body else None
    if names is None:
        return None
    if not 0 < len(names) <= MOST_DRIVERS:
        raise WireError("Drivers", f"expected 1 to {MOST_DRIVERS} drivers, not {len(names)}; without it, all count")
    return frozenset(_driver(name, f"Drivers[{index}]") for index, name in enumerate(names))


def decode_estimate(body: bytes) -> EstimateArgs:
    """Estimate: ``Pods`` (a list of pods), ``NodeGroups``, ``Expander``.

    Raises:
        WireError: the body is something else; a pod or group is there twice; there is no such expander.
    """
    root = root_of(body)
    items = optional(required(root, "Pods", dict), "items", list, "Pods.") or []
    pods = tuple(as_pending(item, f"Pods.items[{index}]") for index, item in enumerate(items))
    _refuse_twice([str(each.pod) for each in pods], "Pods.items", "pod")
    _refuse_twice([each.pod.uid for each in pods], "Pods.items", "uid")
    entries = required(root, "NodeGroups", list)
    groups = tuple(_group(entry, f"NodeGroups[{index}]") for index, entry in enumerate(entries))
    _refuse_twice([each.name for each in groups], "NodeGroups", "node group")
    expander = optional(root, "Expander", str) or DEFAULT_EXPANDER
    if expander not in EXPANDERS:
        raise WireError("Expander", f'unknown expander "{expander}"{suggestion(expander, EXPANDERS)}')
    return EstimateArgs(pods, groups, expander)


def encode_started(session_id: str) -> bytes:
    """The id that every later call carries as the header ``session``."""
    return wire.as_line({"Session": session_id})


def encode_selected() -> bytes:
    """The pod is booked."""
    return wire.as_line({})


def encode_ready(readiness: Readiness) -> bytes:
    """Whether the node is complete, and why not."""
    return wire.as_line({"Ready": True} if readiness.ready else {"Ready": False, "Reason": readiness.reason})


def encode_plan(plan: Plan) -> bytes:
    """All groups in the order asked, with the nodes to add, and the pods that none of them helps."""
    groups = [
        {
            "Name": group.name,
            "Add": len(group.nodes),
            "Nodes": [{"Pods": [str(pod) for pod in node]} for node in group.nodes],
            "Devices": group.devices,
        }
        for group in plan.groups
    ]
    return wire.as_line({"NodeGroups": groups, "FailedPods": {str(pod): reason for pod, reason in plan.failed}})


def _driver(value: JSON, where: str) -> str:
    if not isinstance(value, str):
        raise mismatch(where, str, value)
    if wrong := driver_name(value):
        raise WireError(where, f"{shown(value)} {wrong}")
    return value


def as_pending(value: JSON, where: str) -> PendingPod:
    """A value that must be a pending Pod; ``where`` is its own path."""
    pod = _identified(as_pod(value, where))
    try:
        return PendingPod(pod, parse_demand(as_object(value, where)))
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def _group(value: JSON, where: str) -> NodeGroup:
    entry = as_object(value, where)
    name = text(entry, "Name", f"{where}.")
    template = required(entry, "Template", dict, f"{where}.")
    limit = required(entry, "Limit", int, f"{where}.")
    if limit < 0:
        raise WireError(f"{where}.Limit", f"must not be negative, not {limit}")
    priority = optional(entry, "Priority", int, f"{where}.") or 0
    return NodeGroup(name, as_room(template, f"{where}.Template"), limit, priority)


def as_room(template: Mapping[str, JSON], where: str) -> Room:
    """A template may be without a name: none of its nodes will have it."""
    metadata = optional(template, "metadata", dict, f"{where}.") or {}
    named = {**template, "metadata": {"name": "template", **metadata}}
    try:
        return parse_room(named)
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def _node(value: Mapping[str, JSON], where: str) -> NodeObject:
    try:
        return parse_node_object(value)
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def _identified(pod: Pod) -> Pod:
    """With a uid: autoscalers make up pods as well, and people write them by hand."""
    return pod if pod.uid else replace(pod, uid=str(pod))


def _problem(where: str, error: InvalidObjectError) -> WireError:
    return WireError(where, error.summary)


def _refuse_twice(names: list[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise WireError(f"{where}[{index}]", f"{what} {name} is there twice")
        seen.add(name)
