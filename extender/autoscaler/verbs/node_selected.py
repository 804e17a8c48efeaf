"""NodeSelected: books a pod on the node that the autoscaler has found for it."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from immutables import Map

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.sessions.peers import SESSION
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs.sent_objects import EXAMPLE_NODE, as_node, identified
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.decisions.solver import No, Solver
from extender.tools.faults import RefusedError
from extender.verbs import wire
from extender.verbs.verb import EXAMPLE_POD, Doc, Verb, count_facts, pod_facts
from extender.verbs.wire import as_pod, name_of, required, root_of


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
    pod = as_pod(required(root, "Pod", dict), "Pod")
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
