"""Devices in pieces: what could be given if it were on one node."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import count

import pytest

from extender.answers.defragmentation.in_pieces import ASKED_SECONDS, MOST_SHAPES, InPieces, PiecesKeeper, in_pieces
from extender.faces.assembly import Extender
from extender.framework.asked import Asked
from extender.tools.offload import at_once
from tests.extender.answers.defragmentation.scenes import runs, waits
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    app_over,
    asking,
    client_of,
    local_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.clusters import claim as made_claim

NODES = [GPU, *(each for name in ("a", "b") for each in (node(name), local_slice(name, devices=4)))]
THREE_LEFT_EACH = [*NODES, *runs("r", "a/gpu-0", on="a"), *runs("s", "b/gpu-0", on="b")]


def found(objects: Collection[Object], *lacking: str) -> int:
    pieces = in_pieces(snapshot_of(*objects), solver(), lambda each: each.name in lacking).devices
    assert set(pieces) <= {DRIVER}
    return pieces.get(DRIVER, 0)


@pytest.mark.parametrize(
    ("waiting", "devices"),
    [
        ([], 0),
        ([waits("p", 4)], 4),  # three are free on each node
        ([waits("p", 6)], 6),
        ([waits("p", 7)], 0),  # so many are not free at all
        ([waits("p", 4), waits("q", 4)], 4),  # there are six, so one pod could be served
        ([waits("p", 4), waits("q", 6)], 6),  # the same devices would serve either
    ],
)
def test_devices_that_would_do_on_one_node_are_in_pieces(waiting: list[list[Object]], devices: int) -> None:
    objects = [*THREE_LEFT_EACH, *(each for of_pod in waiting for each in of_pod)]
    assert found(objects, "p", "q") == devices


def test_pods_that_wait_for_something_else_do_not_count() -> None:
    assert found([*THREE_LEFT_EACH, *waits("p", 4)]) == 0


def test_a_look_ends_with_its_time_however_many_pods_wait() -> None:
    asked, ticks = count(), count()
    world = snapshot_of(*NODES, *(each for number in range(100) for each in waits(f"p-{number}", 6)))
    hurried = replace(solver(), clock=lambda: float(next(ticks)), until=10.0)
    assert in_pieces(world, hurried, lambda _: next(asked) >= 0).devices == {}
    assert next(asked) < 20


def of_namespace(namespace: str, objects: Iterable[Object]) -> list[Object]:
    """The objects, in another namespace."""
    return [
        {
            **each,
            "metadata": each["metadata"] | {"namespace": namespace, "uid": f"{namespace}-{each['metadata']['uid']}"},
        }
        for each in objects
    ]


def placed(waiting: list[Object], label: str, value: str) -> list[Object]:
    """A pod for the nodes with a label."""
    of_pod, *claims = waiting
    return [{**of_pod, "spec": of_pod["spec"] | {"nodeSelector": {label: value}}}, *claims]


def small(name: str) -> list[Object]:
    """A node with three devices."""
    return [node(name, labels={"size": "small"}), local_slice(name, devices=3)]


def crowd(shapes: Iterable[int], namespace: str = "crowd") -> list[Object]:
    """Important pods of another namespace; each is of its own shape, and asks for more devices than there are."""
    asked = (waits(f"p-{number}", 100 + number, priority=1000) for number in shapes)
    return of_namespace(namespace, (each for of_pod in asked for each in of_pod))


def test_many_shapes_of_one_namespace_keep_those_of_no_other_from_counting() -> None:
    world = snapshot_of(*THREE_LEFT_EACH, *crowd(range(2 * MOST_SHAPES)), *waits("p", 4))
    pieces = in_pieces(world, solver(), lambda _: True)
    assert pieces == InPieces({DRIVER: 4}, frozenset({"ns", "crowd"}))


def test_a_shape_that_a_namespace_shares_with_a_crowd_counts_in_its_own_turn() -> None:
    same = of_namespace("crowd", waits("same", 4, created="2025-01-01T00:00:00Z"))
    world = snapshot_of(*THREE_LEFT_EACH, *crowd(range(2 * MOST_SHAPES)), *same, *waits("p", 4))
    assert in_pieces(world, solver(), lambda _: True).devices == {DRIVER: 4}


def test_many_pods_of_one_namespace_leave_the_others_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.answers.defragmentation.in_pieces.MOST_PODS", 4)
    world = snapshot_of(*THREE_LEFT_EACH, *crowd(range(8)), *waits("p", 4))
    assert in_pieces(world, solver(), lambda _: True).devices == {DRIVER: 4}


def test_a_shape_that_takes_long_leaves_the_others_their_time() -> None:
    """Each look at the clock takes a second, and there are at least 78 of them in the large pool."""
    large = [node("c", labels={"size": "large"}), local_slice("c", devices=5000)]
    wide = of_namespace("crowd", placed(waits("wide", 2000, priority=1000), "size", "large"))
    world = snapshot_of(GPU, *large, *small("a"), *small("b"), *wide, *placed(waits("p", 4), "size", "small"))
    ticks = count()
    hurried = replace(solver(), clock=lambda: float(next(ticks)), until=80.0)
    pieces = in_pieces(world, hurried, lambda _: True)
    assert pieces == InPieces({DRIVER: 4}, frozenset({"ns", "crowd"}))


def test_namespaces_that_had_no_turn_come_first_in_the_next_look() -> None:
    crowds = [each for number in range(MOST_SHAPES) for each in crowd([number], f"crowd-{number}")]
    world = snapshot_of(*THREE_LEFT_EACH, *crowds, *waits("p", 4))
    first = in_pieces(world, solver(), lambda _: True)
    assert (first.devices, len(first.namespaces)) == ({}, MOST_SHAPES)
    second = in_pieces(world, solver(), lambda _: True, later=first.namespaces)
    assert (second.devices, len(second.namespaces)) == ({DRIVER: 4}, MOST_SHAPES)


def test_within_a_large_pool_a_look_lets_others_go_on() -> None:
    ticks, world = count(), snapshot_of(GPU, node("a"), local_slice("a", devices=1280), *waits("p", 2000))
    patient = replace(solver(), clock=lambda: float(next(ticks)), until=1e9)
    assert in_pieces(world, patient, lambda _: True).devices == {}
    assert next(ticks) > 1280 / 64


def test_requests_of_one_class_need_their_devices_together() -> None:
    both = made_claim("p-c", request("first", count=4), request("second", count=3))
    assert found([*THREE_LEFT_EACH, pod("p", "p-c"), both], "p") == 0


class Keeping:
    """The task, and what it tells."""

    def __init__(self, cluster: Cluster, extender: Extender | None = None) -> None:
        overview = (extender or cluster.extender(off_loop=at_once)).overview
        self.told: list[Mapping[str, int] | None] = []
        self._now = 0.0
        self.asked = Asked(lambda: self._now, ("ours", "default-scheduler"))
        solver, log = overview.decider.solver, overview.decision_log
        self._keeper = PiecesKeeper(
            cluster.state, self.told.append, solver, log, self.asked, lambda: self._now, at_once
        )

    async def look(self, after: float = 0) -> None:
        self._now += after
        await self._keeper.tick()


async def test_the_task_counts_the_pods_that_filter_has_rejected_for_want_of_devices() -> None:
    cluster = Cluster.of(*THREE_LEFT_EACH, *waits("p", 4))
    extender = cluster.extender(off_loop=at_once)
    scene = Keeping(cluster, extender)
    await scene.look()
    async with client_of(app_over(extender)) as http:
        assert (await http.post("/filter", json=asking(pod("p", "p-c"), "a", "b"))).json()["NodeNames"] == []
    scene.asked.note(parsed(pod("p", "p-c")))
    await scene.look(after=1)
    await scene.look(after=29)
    assert scene.told == [None, {DRIVER: 4}]


async def test_a_replica_that_no_scheduler_asks_any_more_does_not_know() -> None:
    scene = Keeping(Cluster.of(*THREE_LEFT_EACH, *waits("p", 4)))
    scene.asked.note(parsed(pod("other")))
    await scene.look()
    await scene.look(after=ASKED_SECONDS + 1)
    assert scene.told == [{}, None]


@pytest.mark.parametrize(
    "waiting",
    [
        [],
        [pod("plain")],
        [{**pod("p", "p-c"), "spec": {**pod("p", "p-c")["spec"], "schedulingGates": [{"name": "a-queue"}]}}],
        [{**pod("p", "p-c"), "spec": {**pod("p", "p-c")["spec"], "schedulerName": "another"}}],
    ],
    ids=["none", "one without devices", "one behind a gate", "one of another scheduler"],
)
async def test_as_long_as_no_pod_of_ours_waits_nothing_is_in_pieces(waiting: list[Object]) -> None:
    scene = Keeping(Cluster.of(*THREE_LEFT_EACH, *waiting))
    await scene.look()
    assert scene.told == [{}]
