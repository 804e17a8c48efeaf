"""The autoscaler's verbs (KEP-3063): how each request is read, answered and written, and its documentation.

HTTP, OpenAPI, metrics and traces are made from the table of verbs. A new verb is an entry there, and a method of the
client (`extender.client`). Requests and answers of filter and prioritize are those of kube-scheduler's verbs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from immutables import Map

from allocator import InvalidObjectError
from allocator.tools import JSON, driver_name, shown
from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.readiness import Readiness, node_readiness
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.plan import (
    EXPANDERS,
    NodeGroup,
    NodeRoom,
    PendingPod,
    ScaleUpPlan,
    parse_demand,
    parse_room,
)
from extender.autoscaler.sessions import SESSION, Planned
from extender.autoscaler.simulated_cluster import Scope, World
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.framework import wire
from extender.framework.cycle import policy_of
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.framework.filter import FilterResult
from extender.framework.ranking import score_nodes
from extender.framework.verb import EXAMPLE_POD, Doc, Facts, Verb, count_facts, filter_facts, pod_facts
from extender.framework.wire import WireError, as_object, as_pod, mismatch, name_of, optional, required, root_of, text
from extender.tools.faults import RefusedError
from extender.tools.user_error import suggestion

OF_SESSION: Final[Mapping[str, str]] = {SESSION: "The id that start gave; without it the latest snapshot answers."}

EXAMPLE_NODE: Final[JSON] = {
    "metadata": {"name": "general-template", "labels": {"example.com/machine": "general"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}


def as_pending(value: JSON, where: str, parse: Callable[[Mapping[str, object]], Pod] = parse_whole_pod) -> PendingPod:
    """A value that must be a pending Pod; ``where`` is its own path, and ``parse`` reads it."""
    pod = identified(as_pod(value, where, parse))
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
    """The pod with a uid: autoscalers make up pods as well, and people write them by hand."""
    return pod if pod.uid else replace(pod, uid=str(pod))


def _problem(where: str, error: InvalidObjectError) -> WireError:
    return WireError(where, error.summary)


MOST_DRIVERS: Final = 64
"""Drivers in the scope of one session."""


@dataclass(frozen=True, slots=True)
class StartArgs:
    """The scope of a new session.

    Attributes:
        drivers: None: all drivers.
        whole_pods: also all that kube-scheduler's default filters check, except volumes.
    """

    drivers: frozenset[str] | None = None
    whole_pods: bool = False


def decode_start(body: bytes) -> StartArgs:
    """An empty body, or an object; ``Drivers`` names the drivers that the session judges.

    Raises:
        WireError: the body is something else; there is no driver, or too many; a name is not one of a driver.
    """
    root = root_of(body) if body else {}
    return StartArgs(_drivers(optional(root, "Drivers", list)), bool(optional(root, "WholePods", bool)))


def _drivers(names: Sequence[JSON] | None) -> frozenset[str] | None:
    if names is None:
        return None
    if not 0 < len(names) <= MOST_DRIVERS:
        raise WireError("Drivers", f"expected 1 to {MOST_DRIVERS} drivers, not {len(names)}; without it, all count")
    return frozenset(_driver(name, f"Drivers[{index}]") for index, name in enumerate(names))


@dataclass(frozen=True, slots=True)
class Started:
    """A new session, and what it does not know, in words."""

    session: str
    unknown: Sequence[str] = ()


def start_session(by: InSession, drivers: frozenset[str] | None = None, world: World | None = None) -> str:
    """The id of a new session.

    Args:
        by: its caller starts the session.
        drivers: those that the session judges; None: all.
        world: what it begins with; None: the cluster as it is now.

    Raises:
        RefusedError: the cluster is not known well enough.
    """
    world = by.autoscaler.latest() if world is None else world
    scope = None if drivers is None else Scope(drivers, world.supply)
    return by.autoscaler.sessions.start(replace(world, scope=scope), by.caller, by.owner).id


async def _started(by: InSession, args: StartArgs) -> Started:
    if not args.whole_pods:
        return Started(start_session(by, args.drivers))
    world, unknown = await by.autoscaler.latest_whole()
    return Started(start_session(by, args.drivers, world), unknown)


def encode_started(started: Started) -> bytes:
    """The id, and what is not known."""
    return wire.as_line({"Session": started.session, **_not_modeled(started.unknown)})


def _not_modeled(words: Sequence[str]) -> Mapping[str, JSON]:
    return {"NotModeled": list(words)} if words else {}


def _driver(value: JSON, where: str) -> str:
    if not isinstance(value, str):
        raise mismatch(where, str, value)
    if wrong := driver_name(value):
        raise WireError(where, f"{shown(value)} {wrong}")
    return value


START: Final[Verb[InSession, StartArgs, Started]] = Verb(
    "start",
    decode_start,
    _started,
    lambda _, started: encode_started(started),
    Doc(
        "Begin a session on a snapshot of the cluster. Later calls carry its id as the header session.",
        {"Drivers": ["gpu.example.com"], "WholePods": False},
        {"Session": "lk6RqTZ8tR0BzQ8FmXyB4oTnJ1yZ0m7bYwG2cUeVh5s"},
    ),
    is_small=True,
)


@dataclass(frozen=True, slots=True)
class SimulatedArgs:
    """ExtenderArgs of a simulation: the nodes may not exist.

    Attributes:
        asked: as the scheduler's verbs have it.
        nodes: those that were sent as a whole; none where only names were sent.
    """

    asked: wire.FilterArgs
    nodes: tuple[NodeObject, ...]


def decode_simulated(body: bytes) -> SimulatedArgs:
    """ExtenderArgs.

    Raises:
        WireError: the body is something else.
    """
    return simulated(wire.decode_whole(body))


def simulated(asked: wire.FilterArgs) -> SimulatedArgs:
    """A scheduler's call, asked in a simulation.

    Raises:
        WireError: a node can't be read.
    """
    sent = asked.nodes or {}
    nodes = tuple(as_node(item, f"Nodes.items[{index}]") for index, item in enumerate(sent.values()))
    return SimulatedArgs(replace(asked, pod=identified(asked.pod)), nodes)


def simulated_facts(args: SimulatedArgs) -> Facts:
    """The facts of the request for a trace."""
    return {**pod_facts(args.asked.pod), **count_facts("nodes", asked=len(args.asked.names))}


async def filter_simulated(by: InSession, args: SimulatedArgs) -> FilterResult:
    """Which nodes will do for the pod.

    Raises:
        RefusedError: there is no such session, or the cluster is not known well enough.
        TimeoutError: time was up before any node was found.
    """
    autoscaler = by.autoscaler
    work = partial(_filtered, args, autoscaler.decider, autoscaler.for_call().until)

    async def ask(world: World) -> World:
        known = {each.name: each for each in args.nodes}
        nodes = [known.get(name) or world.snapshot.nodes.get(name) for name in args.asked.names]
        there = [each for each in nodes if each is not None]
        return await autoscaler.negotiating.about_nodes(world, args.asked.pod, there)

    return await by.within(work, ask)


def _filtered(args: SimulatedArgs, decider: Decider, until: float, world: World) -> tuple[World, FilterResult]:
    world = world.with_nodes(args.nodes)
    return world, world.filter(args.asked.pod, args.asked.names, decider, sent=args.nodes, until=until)


FILTER: Final[Verb[InSession, SimulatedArgs, FilterResult]] = Verb(
    "filter",
    decode_simulated,
    filter_simulated,
    lambda args, result: wire.encode_filter(args.asked, result),
    Doc(
        "Which of these nodes, real or not, can have the pod? (ExtenderArgs)",
        {"Pod": EXAMPLE_POD, "Nodes": {"items": [EXAMPLE_NODE]}, "NodeNames": None},
        {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Nodes": {"items": [EXAMPLE_NODE]}},
        OF_SESSION,
    ),
    has_whole_objects=True,
    asked=simulated_facts,
    answered=filter_facts,
)


async def prioritize_simulated(by: InSession, args: SimulatedArgs) -> Sequence[int]:
    """A score for every node, in the order asked.

    Raises:
        RefusedError, TimeoutError: as `filter_simulated`.
    """
    found = await filter_simulated(by, args)
    policy = by.autoscaler.solver.policy
    return score_nodes(args.asked.names, found.merits, policy_of(args.asked.pod, policy) or policy)


PRIORITIZE: Final[Verb[InSession, SimulatedArgs, Sequence[int]]] = Verb(
    "prioritize",
    decode_simulated,
    prioritize_simulated,
    lambda args, scores: wire.encode_scores(args.asked.names, scores),
    Doc(
        "How well does each node, real or not, suit, from 0 to 10? (ExtenderArgs)",
        {"Pod": EXAMPLE_POD, "Nodes": {"items": [EXAMPLE_NODE]}, "NodeNames": None},
        [{"Host": "general-template", "Score": 0}],
        OF_SESSION,
    ),
    has_whole_objects=True,
    asked=simulated_facts,
)


@dataclass(frozen=True, slots=True)
class SelectedArgs:
    """A pod, and the node that the autoscaler has found for it."""

    pod: Pod
    node: NodeObject


def decode_selected(body: bytes) -> SelectedArgs:
    """``Pod`` and ``Node``, both whole.

    Raises:
        WireError: the body is something else.
    """
    root = root_of(body)
    pod = as_pod(required(root, "Pod", dict), "Pod", parse_whole_pod)
    node = required(root, "Node", dict)
    name_of(node, "Node")
    return SelectedArgs(identified(pod), as_node(node, "Node"))


async def select_node(by: InSession, args: SelectedArgs) -> None:
    """Book the pod on the node: it holds its devices there from now on, in this session.

    Raises:
        RefusedError: there is no such session, or no room for the pod; nothing is booked.
        TimeoutError: time was up; nothing is booked.
    """
    if by.session is None:
        raise RefusedError("NodeSelected books in a session: send the header session, with the id that start gave")
    ask = partial(by.autoscaler.negotiating.about_booking, pod=args.pod, node=args.node)
    booked = await by.within(partial(_selected, args, by.autoscaler.for_call()), ask)
    if isinstance(booked, No):
        raise RefusedError(f"pod {args.pod} can't be booked on node {args.node.name}: {booked.reason.in_words()}")


def _selected(args: SelectedArgs, solver: Solver, world: World) -> tuple[World, World | No]:
    after = world.with_nodes((args.node,)).with_pod(args.pod, args.node, solver)
    return (replace(world, granted=Map()) if isinstance(after, No) else after), after


NODE_SELECTED: Final[Verb[InSession, SelectedArgs, None]] = Verb(
    "NodeSelected",
    decode_selected,
    select_node,
    lambda _, __: wire.as_line({}),
    Doc(
        "Book a pod on a node: it holds its devices there for the rest of the session.",
        {"Pod": EXAMPLE_POD, "Node": EXAMPLE_NODE},
        {},
        {SESSION: "The id that start gave; required."},
    ),
    asked=lambda args: {**pod_facts(args.pod, args.node.name), **count_facts("nodes", asked=1)},
)


def decode_ready(body: bytes) -> str:
    """The node's name, in ``NodeName``.

    Raises:
        WireError: the body is something else.
    """
    return text(root_of(body), "NodeName")


async def node_ready(by: InSession, name: str) -> Readiness:
    """Whether a node's slices are all there, in the cluster as it is now: sessions began before their nodes were made.

    Raises:
        RefusedError: there is no such session, or the cluster is not known well enough.
    """
    expectations = await by.autoscaler.expectations()
    now = by.autoscaler.latest()

    def judged(world: World) -> tuple[World, Readiness]:
        return world, node_readiness(name, replace(now, scope=world.scope, fictional=world.fictional), expectations)

    return await by.within(judged)


def encode_ready(readiness: Readiness) -> bytes:
    """Whether the node is complete, and why not."""
    return wire.as_line({"Ready": True} if readiness.ready else {"Ready": False, "Reason": readiness.reason})


NODE_READY: Final[Verb[InSession, str, Readiness]] = Verb(
    "NodeReady",
    decode_ready,
    node_ready,
    lambda _, readiness: encode_ready(readiness),
    Doc(
        "Are the slices of a new node all there?",
        {"NodeName": "not-there"},
        {"Ready": False, "Reason": "node not yet known"},
        OF_SESSION,
    ),
    is_small=True,
    asked=lambda name: {"k8s.node.name": name, **count_facts("nodes", asked=1)},
)


DEFAULT_EXPANDER: Final = "least-waste"


@dataclass(frozen=True, slots=True)
class EstimateArgs:
    """Pending pods, and the groups that can grow; ``expander`` is one of `EXPANDERS`."""

    pods: tuple[PendingPod, ...]
    groups: tuple[NodeGroup, ...]
    expander: str = DEFAULT_EXPANDER


def decode_estimate(body: bytes) -> EstimateArgs:
    """``Pods`` (a list of pods), ``NodeGroups``, ``Expander``.

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


async def estimate_nodes(by: InSession, args: EstimateArgs) -> ScaleUpPlan:
    """A plan of nodes to add, which the session remembers; nothing is booked.

    Raises:
        RefusedError: there is no such session, or the cluster is not known well enough.
        TimeoutError: time was up.
    """
    autoscaler = by.autoscaler
    choose, solver = EXPANDERS[args.expander], autoscaler.for_call()
    pods: Sequence[PendingPod] = args.pods

    async def plan(world: World, pods: Sequence[PendingPod]) -> ScaleUpPlan:
        return await autoscaler.off_loop(partial(estimate, world, pods, args.groups, choose, solver))

    async def ask(world: World) -> World:
        nonlocal pods
        world, pods = await autoscaler.negotiating.agreed(world, pods, args.groups, plan)
        return world

    found = await by.within(lambda world: (world, estimate(world, pods, args.groups, choose, solver)), ask)
    if by.session is not None:
        autoscaler.sessions.note(by.session, Planned(found, args.groups), autoscaler.state.snapshot)
    return found


def encode_plan(plan: ScaleUpPlan) -> bytes:
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
    failed = {str(pod): reason for pod, reason in plan.failed}
    return wire.as_line({"NodeGroups": groups, "FailedPods": failed, **_not_modeled(plan.unmodeled)})


def _group(value: JSON, where: str) -> NodeGroup:
    entry = as_object(value, where)
    name = text(entry, "Name", f"{where}.")
    template = required(entry, "Template", dict, f"{where}.")
    limit = required(entry, "Limit", int, f"{where}.")
    if limit < 0:
        raise WireError(f"{where}.Limit", f"must not be negative, not {limit}")
    priority = optional(entry, "Priority", int, f"{where}.") or 0
    return NodeGroup(name, as_room(template, f"{where}.Template"), limit, priority)


def _refuse_twice(names: list[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise WireError(f"{where}[{index}]", f"{what} {name} is there twice")
        seen.add(name)


ESTIMATE: Final[Verb[InSession, EstimateArgs, ScaleUpPlan]] = Verb(
    "estimate",
    decode_estimate,
    estimate_nodes,
    lambda _, plan: encode_plan(plan),
    Doc(
        "How many nodes to add to each group for pending pods?",
        {
            "Pods": {"items": [EXAMPLE_POD]},
            "NodeGroups": [{"Name": "general", "Template": EXAMPLE_NODE, "Limit": 10, "Priority": 0}],
            "Expander": "least-waste",
        },
        {
            "NodeGroups": [{"Name": "general", "Add": 1, "Nodes": [{"Pods": ["default/plain"]}], "Devices": ""}],
            "FailedPods": {},
        },
        OF_SESSION,
    ),
    has_whole_objects=True,
    asked=lambda args: count_facts("pods", asked=len(args.pods)),
    answered=lambda plan: count_facts("pods", failed=len(plan.failed)),
)


AUTOSCALER_VERBS: Final[tuple[Verb[InSession, Any, Any], ...]] = (
    START,
    FILTER,
    PRIORITIZE,
    NODE_SELECTED,
    NODE_READY,
    ESTIMATE,
)
