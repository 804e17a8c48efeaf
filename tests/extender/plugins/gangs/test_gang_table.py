"""The table of gangs."""

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.plugins.gangs.gang import gangs
from tests.extender.plugins.gangs.scenes import member, members, nodes
from tests.kit.clusters import DRIVER, Object, snapshot_of

_PART = "1 of 2 pods have a node, and keep it with their devices; no pod of the group waits for the rest"
_LACK = "waiting for devices for 2 pods of group x together"


def kept(found: list[Object], on: str) -> list[Object]:
    """The same pod and claim; a device on a node is kept for the pod."""
    message = f"node {on}: devices are kept for the pod: {DRIVER}/{on}/gpu-0"
    found[0]["status"]["conditions"] = [{"type": "dra-extender/DevicesKept", "status": "True", "message": message}]
    return found


@pytest.mark.parametrize(
    ("pods", "state", "numbers", "waiting", "why"),
    [
        (members("x", 2), "waits", (2, 2, 0, 0), ["x0", "x1"], _LACK),
        (member("x0", "x", 2), "waits", (2, 1, 0, 0), ["x0"], "waiting for the pods of group x: 1 of 2 are there"),
        ([*kept(member("x0", "x", 2), "a"), *kept(member("x1", "x", 2), "b")], "ready", (2, 2, 0, 2), ["x0", "x1"], ""),
        ([*member("x0", "x", 2, on="a"), *member("x1", "x", 2, on="b")], "placed", (2, 2, 2, 0), [], ""),
        (
            member("x0", "x", 2, on="a"),
            "runs in part",
            (2, 1, 1, 0),
            [],
            f"group x runs in part: {_PART}",
        ),
        (
            [*member("x0", "x", 2), *member("x1", "x", 3)],
            "wrong",
            (2, 2, 0, 0),
            ["x0", "x1"],
            f"annotation {GROUP_SIZE}: the pods with the same {GROUP} have different sizes: 2, 3",
        ),
    ],
    ids=["no devices", "a pod is missing", "ready", "placed", "in part", "wrong"],
)
def test_a_gang_has_its_state_its_numbers_and_why_it_waits(
    pods: list[Object], state: str, numbers: tuple[int, ...], waiting: list[str], why: str
) -> None:
    (row,) = gangs(snapshot_of(*nodes("ab"), *pods)).rows
    found = row.item()
    assert (found["gang"], found["state"], found["why"]) == ("x", state, why)
    assert tuple(found[name] for name in ("size", "pods", "bound", "kept")) == numbers
    assert found["waiting"] == waiting


def test_gangs_are_filtered_by_namespace_and_state() -> None:
    snapshot = snapshot_of(*nodes("ab"), *members("x", 2), *member("y0", "y", 1, on="a"))
    assert [row.key[1] for row in gangs(snapshot).rows] == ["x", "y"]
    assert [row.key[1] for row in gangs(snapshot, state="placed").rows] == ["y"]
    assert [*gangs(snapshot, namespace="other").rows] == []
