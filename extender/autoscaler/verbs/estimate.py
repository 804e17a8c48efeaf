"""estimate: how many nodes to add to each group for pending pods."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from allocator.tools import JSON
from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.expanders import EXPANDERS
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod, ScaleUpPlan
from extender.autoscaler.sessions.sessions import Planned
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs.sent_objects import EXAMPLE_NODE, OF_SESSION, as_pending, as_room
from extender.tools.wording import suggestion
from extender.verbs import wire
from extender.verbs.verb import EXAMPLE_POD, Doc, Verb, count_facts
from extender.verbs.wire import WireError, as_object, optional, required, root_of, text

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

    def plan(world: World) -> tuple[World, ScaleUpPlan]:
        return world, estimate(world, args.pods, args.groups, choose, solver)

    ask = partial(autoscaler.negotiating.about_groups, pods=args.pods, groups=args.groups)
    found = await by.within(plan, ask)
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
    return wire.as_line({"NodeGroups": groups, "FailedPods": {str(pod): reason for pod, reason in plan.failed}})


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
