"""filter: which nodes, real or made up, will do for a pod. Request and answer are those of kube-scheduler's verb."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs.sent_objects import EXAMPLE_NODE, OF_SESSION, as_node, identified
from extender.cluster.objects.nodes import NodeObject
from extender.decisions.evaluate import Decider
from extender.verbs import wire
from extender.verbs.filter import FilterResult
from extender.verbs.verb import EXAMPLE_POD, Doc, Facts, Verb, count_facts, filter_facts, pod_facts


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
    return simulated(wire.decode_filter(body))


def simulated(asked: wire.FilterArgs) -> SimulatedArgs:
    """A scheduler's call, asked in a simulation.

    Raises:
        WireError: a node can't be read.
    """
    sent = asked.nodes or {}
    nodes = tuple(as_node(item, f"Nodes.items[{index}]") for index, item in enumerate(sent.values()))
    return SimulatedArgs(replace(asked, pod=identified(asked.pod)), nodes)


def simulated_facts(args: SimulatedArgs) -> Facts:
    """What a trace tells of the request."""
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
