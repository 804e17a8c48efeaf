"""Pods and Nodes that callers send: whole API objects to values; and what the documentation of several verbs shares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from allocator import InvalidObjectError
from allocator.tools import JSON
from extender.autoscaler.scale_up.demand import NodeRoom, parse_demand, parse_room
from extender.autoscaler.scale_up.plan import PendingPod
from extender.autoscaler.sessions.peers import SESSION
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.cluster.objects.pods import Pod
from extender.verbs.wire import WireError, as_object, as_pod, optional

OF_SESSION: Final[Mapping[str, str]] = {SESSION: "The id that start gave; without it the latest snapshot answers."}

EXAMPLE_NODE: Final[JSON] = {
    "metadata": {"name": "general-template", "labels": {"example.com/machine": "general"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}


def as_pending(value: JSON, where: str) -> PendingPod:
    """A value that must be a pending Pod; ``where`` is its own path."""
    pod = identified(as_pod(value, where))
    try:
        return PendingPod(pod, parse_demand(as_object(value, where)))
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def as_room(template: Mapping[str, JSON], where: str) -> NodeRoom:
    """A template may be without a name: none of its nodes will have it."""
    metadata = optional(template, "metadata", dict, f"{where}.") or {}
    named = {**template, "metadata": {"name": "template", **metadata}}
    try:
        return parse_room(named)
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def as_node(value: Mapping[str, JSON], where: str) -> NodeObject:
    """An object that must be a Node; ``where`` is its own path."""
    try:
        return parse_node_object(value)
    except InvalidObjectError as error:
        raise _problem(where, error) from error


def identified(pod: Pod) -> Pod:
    """With a uid: autoscalers make up pods as well, and people write them by hand."""
    return pod if pod.uid else replace(pod, uid=str(pod))


def _problem(where: str, error: InvalidObjectError) -> WireError:
    return WireError(where, error.summary)
