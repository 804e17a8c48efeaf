"""Devices in pieces: what could be given if it were on one node."""

from collections.abc import Collection

import pytest

from extender.answers.defragmentation.in_pieces import PiecesKeeper, in_pieces
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
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.clusters import claim as made_claim

NODES = [GPU, *(each for name in ("a", "b") for each in (node(name), local_slice(name, devices=4)))]
THREE_LEFT_EACH = [*NODES, *runs("r", "a/gpu-0", on="a"), *runs("s", "b/gpu-0", on="b")]


def found(objects: Collection[Object], *lacking: str) -> int:
    pieces = in_pieces(snapshot_of(*objects), solver(), lambda each: each.name in lacking)
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


def test_requests_of_one_class_need_their_devices_together() -> None:
    both = made_claim("p-c", request("first", count=4), request("second", count=3))
    assert found([*THREE_LEFT_EACH, pod("p", "p-c"), both], "p") == 0


async def test_the_task_counts_the_pods_that_filter_has_rejected_for_want_of_devices() -> None:
    cluster = Cluster.of(*THREE_LEFT_EACH, *waits("p", 4))
    extender = cluster.extender(off_loop=at_once)
    told: list[int] = []
    now = 0.0
    overview = extender.overview
    keeper = PiecesKeeper(
        cluster.state,
        lambda pieces: told.append(pieces.get(DRIVER, 0)),
        overview.decider.solver,
        overview.decision_log,
        (),
        lambda: now,
        at_once,
    )
    await keeper.tick()
    async with client_of(app_over(extender)) as http:
        assert (await http.post("/filter", json=asking(pod("p", "p-c"), "a", "b"))).json()["NodeNames"] == []
    await keeper.tick()
    now += 30
    await keeper.tick()
    assert told == [0, 4]
