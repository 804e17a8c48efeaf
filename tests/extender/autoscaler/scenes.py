"""Node templates, node groups, pods with claims from templates, and worlds over small clusters, in few words."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import yaml

from extender.autoscaler.autoscaler import Autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.readiness import DRIVERS, DriverDaemonSets, Expectations, read_daemon_sets
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.plan import EXPANDERS, NodeGroup, PendingPod, ScaleUpPlan, parse_demand, parse_room
from extender.autoscaler.sessions import Peers, SessionLimits, Sessions
from extender.autoscaler.simulated_cluster import World
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.planning.templates import Catalog, NodeTemplate, Supply, load_templates
from tests.kit.clusters import CREATED, DRIVER, GPU, Cluster, Object, claim_template, node, parsed, pod, solver
from tests.kit.servers.memory import memory_api

GROUP = "example.com/group"


def pod_of(name: str = "p", *templates: str, **options: Any) -> Object:
    """A pod in namespace "ns" with a claim from each of the templates, which is not made yet."""
    raw = pod(name, **options)
    raw["spec"]["resourceClaims"] += [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    return raw


def machine(name: str, group: str = "", **resources: str) -> Object:
    """A node of a group; with resources, those are allocatable."""
    raw = node(name, labels={GROUP: group} if group else None, allocatable=resources)
    if not resources:
        del raw["status"]["allocatable"]
    return raw


def node_template(group: str, devices: int = 1, *, driver: str = DRIVER, **device: Any) -> Object:
    """Nodes of a group bring devices gpu-0, gpu-1, ..."""
    published = [{"name": f"gpu-{index}", **device} for index in range(devices)]
    return {"name": group, "labels": {GROUP: group}, "slices": [{"driver": driver, "devices": published}]}


def templates_of(*entries: Object) -> tuple[NodeTemplate, ...]:
    return load_templates(yaml.safe_dump({"nodeTemplates": list(entries)}), file="templates.yaml")


def world_of(
    objects: Iterable[Object] = (), *entries: Object, learn: str = "", counts_resources: bool = False
) -> World:
    """A world over a cluster with the class and the template "gpu", and node templates.

    ``counts_resources``: as with the gate DRANodeAllocatableResources.
    """
    snapshot = Cluster.of(GPU, claim_template(), *objects, counts_resources=counts_resources).state.snapshot
    return World(snapshot, Supply(Catalog(templates_of(*entries), learn), snapshot))


def made_up(*raw: Object) -> tuple[NodeObject, ...]:
    return tuple(parse_node_object(each) for each in raw)


def pending(*raw: Object) -> tuple[PendingPod, ...]:
    return tuple(PendingPod(parsed(each), parse_demand(each)) for each in raw)


def group_of(
    name: str, limit: int = 10, *, priority: int = 0, node: Object | None = None, **resources: str
) -> NodeGroup:
    """A node group; its template carries the group's label."""
    return NodeGroup(name, parse_room(node or machine("template", name, **resources)), limit, priority)


def autoscaler_over(
    state: ClusterState,
    *entries: Object,
    limits: SessionLimits | None = None,
    clock: Sequence[float] = (0.0,),
    first: int = 0,
    peers: Peers | None = None,
) -> Autoscaler:
    """The verbs; sessions are called session-0, session-1, ... from the first, and ``clock[0]`` is their time."""
    ids = count(first)

    def new_id() -> str:
        name = f"session-{next(ids)}"
        return name if peers is None else peers.named(name)

    sessions = Sessions(limits or SessionLimits(), clock=lambda: clock[0], new_id=new_id)
    decider = Decider(solver(), state)
    catalog = Catalog(templates_of(*entries))

    async def expected() -> Expectations:
        return expectations()

    negotiating = Negotiating({}, memory_api())
    return Autoscaler(state, decider, catalog, sessions, 30.0, expected, negotiating, peers=peers)


def expectations(
    *daemon_sets: Object, seconds: float = 300.0, named: dict[str, list[str]] | None = None
) -> Expectations:
    """What tells of drivers, this number of seconds after the nodes of `tests.kit.clusters` were made."""
    found, problems = read_daemon_sets(daemon_sets, named or {})
    now = datetime.fromisoformat(CREATED) + timedelta(seconds=seconds)
    return Expectations(DriverDaemonSets(found, "; ".join(problems)), now, patience=timedelta(minutes=5))


def daemon_set(name: str = "gpu-driver", *drivers: str, **spec: Any) -> Object:
    """A DaemonSet in namespace "kube-system", whose pods run these drivers."""
    annotations = {DRIVERS: ", ".join(drivers)} if drivers else {}
    metadata = {"name": name, "namespace": "kube-system", "annotations": annotations}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": spec}}}


def planned(
    world: World,
    pods: Sequence[Object],
    *groups: NodeGroup,
    expander: str = "least-waste",
    by: Solver | None = None,
) -> ScaleUpPlan:
    return estimate(world, pending(*pods), groups, EXPANDERS[expander], by or solver())


def added(plan: ScaleUpPlan) -> dict[str, list[list[str]]]:
    """Group to the names of the pods on each new node; groups that get none are left out."""
    return {group.name: [[pod.name for pod in node] for node in group.nodes] for group in plan.groups if group.nodes}


def failed(plan: ScaleUpPlan) -> dict[str, str]:
    return {pod.name: reason for pod, reason in plan.failed}


def pods(number: int, *templates: str, **options: Any) -> list[Object]:
    return [pod_of(f"p{index}", *templates, **options) for index in range(number)]


BIG = node_template("big", 4)
SMALL = node_template("small", 1)
