"""The laws of defragmentation, over random clusters: each proposal is carried out on a cluster in memory.

A cluster gets pods until some of them fit nowhere, some pods end, and others arrive. Then a proposal is carried out as
the how-to page has it: cordon the node, delete the pods, let their controllers make them again, uncordon the node.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.answers.defragmentation.advice import Advice
from extender.answers.defragmentation.defragment import SearchBounds, defragment
from extender.config.sources import load
from extender.faces.assembly import make_solver
from extender.kube.api import ObjectKey
from extender.kube.resources import NODES as NODE_KIND
from extender.kube.resources import PODS
from tests.kit.clusters import DRIVER, GPU, Object, claim_template, local_slice, network_slice, node, request
from tests.kit.objects.parts import api_object

EXAMPLES: Final = int(os.environ.get("DEFRAGMENTATION_EXAMPLES", "40"))
NODES: Final = ("a", "b", "c")
LARGE: Final = f"device.attributes['{DRIVER}'].large"
SETTINGS: Final = load("scheduling: {policy: spread}")
"""The policy that leaves free devices in pieces."""

SOLVER: Final = replace(make_solver(SETTINGS), clock=lambda: 0.0)
"""Of a cluster in memory, with a clock that stands still."""


@dataclass(frozen=True)
class Wish:
    """A pod.

    Attributes:
        count: of devices.
        large: it asks for large devices.
        priority: the most important pods are scheduled first.
        controlled: a controller makes it again.
        on: the only node that it may run on; empty: any.
    """

    count: int
    large: bool
    priority: int
    controlled: bool = True
    on: str = ""

    @property
    def template(self) -> str:
        return f"t{self.count}{'-large' if self.large else ''}"


@dataclass(frozen=True)
class World:
    """Nodes with devices, a pool that all nodes reach, pods that come, those of them that end, and pods that come last.

    Attributes:
        large: for each node, and for the pool of all, whether each device is large.
        early: the pods that come first.
        ended: the numbers of those that end.
        late: the pods that come last.
    """

    large: dict[str, Sequence[bool]]
    early: Sequence[Wish]
    ended: frozenset[int]
    late: Sequence[Wish]

    def cluster(self) -> Cluster:
        wishes = [*self.early, *self.late]
        templates = {wish.template: wish for wish in wishes}
        objects = [GPU, *(self._template(wish) for wish in templates.values())]
        for name in NODES:
            objects += [node(name), _pool(local_slice(name, len(self.large[name])), self.large[name])]
        if self.large["net"]:
            objects.append(_pool(network_slice("net", len(self.large["net"])), self.large["net"]))
        early = [_pod(f"e{number}", wish, number) for number, wish in enumerate(self.early)]
        found = Cluster.from_objects([*objects, *early], settings=SETTINGS)
        found.schedule()
        for number in self.ended:
            found.remove("Pod", f"e{number}", "ns")
        found.add(*(_pod(f"l{number}", wish, number) for number, wish in enumerate(self.late)))
        found.schedule()
        return found

    @staticmethod
    def _template(wish: Wish) -> Object:
        return claim_template(wish.template, request(count=wish.count, selectors=[LARGE] if wish.large else []))


def _pool(raw: Object, large: Sequence[bool]) -> Object:
    for device, is_large in zip(raw["spec"]["devices"], large, strict=True):
        device["attributes"] = {"large": {"bool": is_large}}
    return raw


def _pod(name: str, wish: Wish, number: int) -> Object:
    """A pod. It is the older the more important it is: a cluster in memory schedules the oldest pod first."""
    metadata: dict[str, Any] = {"creationTimestamp": f"2026-01-01T{20 - wish.priority:02}:00:{number:02}Z"}
    if wish.controlled:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
        metadata["ownerReferences"] = [owner]
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "i"}],
        "priority": wish.priority,
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": wish.template}],
    }
    if wish.on:
        spec["nodeSelector"] = {"kubernetes.io/hostname": wish.on}
    return api_object("Pod", name, namespace="ns", metadata=metadata, spec=spec)


@st.composite
def wishes(draw: st.DrawFn, least: int, most: int) -> Wish:
    """A pod that asks for some devices."""
    return Wish(
        count=draw(st.integers(least, most)),
        large=draw(st.sampled_from([False, False, False, True])),
        priority=draw(st.integers(0, 2)),
        controlled=draw(st.sampled_from([True, True, True, False])),
        on=draw(st.sampled_from(["", "", "", "", "", "", *NODES])),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Many small pods come first, and a few large ones last."""
    large: dict[str, Sequence[bool]] = {name: draw(st.lists(st.booleans(), min_size=3, max_size=4)) for name in NODES}
    large["net"] = draw(st.lists(st.booleans(), max_size=1))
    early = draw(st.lists(wishes(1, 2), min_size=3, max_size=7))
    ended = draw(st.frozensets(st.integers(0, len(early) - 1), max_size=2))
    return World(large, early, ended, draw(st.lists(wishes(3, 4), min_size=1, max_size=3)))


def advised(cluster: Cluster) -> Advice:
    return defragment(cluster.snapshot, SOLVER, bounds=SearchBounds(moves=2))


# --- a proposal is carried out ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What has become of the pods.

    Attributes:
        moved: name of a pod that made room, to the node of the pod in its place while the node was cordoned.
        nodes: name of a pod to its node in the end; empty for a pending pod.
    """

    moved: dict[str, str]
    nodes: dict[str, str]


def carried_out(world: World, node_name: str, movers: Sequence[str]) -> Outcome:
    cluster = world.cluster()
    pods = {each["metadata"]["name"]: each for each in asyncio.run(cluster._embedded.api.list(PODS)).items}
    _cordon(cluster, node_name, unschedulable=True)
    for name in movers:
        cluster.remove("Pod", name, "ns")
    cluster.add(*(_again(pods[name], number) for number, name in enumerate(movers)))
    cluster.schedule()
    away = {pod.name: pod.node_name for pod in cluster.pods}
    _cordon(cluster, node_name, unschedulable=False)
    cluster.schedule()
    nodes = {pod.name: pod.node_name for pod in cluster.pods}
    return Outcome({name: away[f"{name}-again"] for name in movers}, nodes)


def _cordon(cluster: Cluster, name: str, *, unschedulable: bool) -> None:
    patch = {"spec": {"unschedulable": unschedulable}}
    asyncio.run(cluster._embedded.api.patch(NODE_KIND, ObjectKey("", name), patch))


def _again(gone: Object, number: int) -> Object:
    """The pod that a controller makes in the place of a pod."""
    old, spec = gone["metadata"], {name: value for name, value in gone["spec"].items() if name != "nodeName"}
    created = f"2026-01-01T{20 - spec['priority']:02}:30:{number:02}Z"
    metadata = {"creationTimestamp": created, "ownerReferences": old["ownerReferences"]}
    return api_object("Pod", f"{old['name']}-again", namespace="ns", metadata=metadata, spec=spec)


# --- laws ---------------------------------------------------------------------------------------------------


@settings(max_examples=EXAMPLES)
@given(world=worlds())
def test_a_proposal_that_is_carried_out_gives_the_pods_their_devices_and_the_moved_pods_their_places(
    world: World,
) -> None:
    cluster = world.cluster()
    found = advised(cluster)
    assert not found.fitting
    event(f"{len(found.proposals)} proposals for {len(found.shapes)} shapes")
    for proposal in found.proposals:
        names = [move.pod.name for move in proposal.moves]
        event(f"{len(names)} moves, {proposal.evictions} evictions, {len(proposal.placed)} placed")
        outcome = carried_out(world, proposal.node, names)
        assert outcome.moved == {move.pod.name: move.to for move in proposal.moves}
        assert all(outcome.nodes[pod.partition("/")[2]] for pod in proposal.placed)
        assert all(outcome.nodes[f"{move.pod.name}-again"] for move in proposal.moves if move.to)
        assert all(move.pod.controller for move in proposal.moves)


SMALL = Wish(1, large=False, priority=0)
TAKEN = World(
    large={"a": [False] * 3, "b": [False] * 4, "c": [False] * 3, "net": []},
    early=[SMALL, SMALL, replace(SMALL, priority=2), replace(SMALL, count=2), replace(SMALL, count=2, on="b")],
    ended=frozenset(),
    late=[replace(SMALL, count=3)],
)
"""If the less important pod leaves b, the pod that asks for three devices takes the room. If the other one leaves, the
pod that asks for two gets it."""


@settings(max_examples=max(1, EXAMPLES // 10))
@given(world=worlds())
@example(world=TAKEN)
def test_a_single_move_that_would_serve_a_shape_is_found(world: World) -> None:
    """All single moves are carried out for each shape to which no single move is proposed."""
    cluster = world.cluster()
    found = advised(cluster)
    movers = [pod.name for pod in cluster.pods if pod.node_name and pod.controller]
    unserved = [
        {pod.partition("/")[2] for pod in each.pods}
        for each in found.shapes
        if each.proposal is None or each.proposal.evictions or len(each.proposal.moves) > 1
    ]
    for mover, node_name in product(movers, NODES) if unserved else ():
        outcome = carried_out(world, node_name, [mover])
        for names in unserved if outcome.moved[mover] else ():
            assert node_name not in {outcome.nodes[name] for name in names}, f"{mover} makes room on {node_name}"
