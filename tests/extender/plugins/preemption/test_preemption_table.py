"""The table of preemptions."""

import pytest

from extender.plugins.preemption.nominations import preemptions
from tests.kit.clusters import DRIVER, Object, pod, snapshot_of


def waiting(*victims: str, gang: bool = False) -> Object:
    """A pod for which a device is kept, and pods are evicted."""
    raw = pod("p", "p-c", priority=9)
    message = f"node a: devices are kept for the pod: {DRIVER}/a/gpu-0"
    message += f"; evicted for it: {', '.join(victims)}" if victims else ""
    raw["status"]["conditions"] = [{"type": "dra-extender/DevicesKept", "status": "True", "message": message}]
    if gang:
        raw["metadata"]["annotations"] = {"dra-extender.dev/group": "g", "dra-extender.dev/group-size": "1"}
    return raw


def victim(*, terminates: bool = False) -> Object:
    raw = pod("v", "v-c", on="a")
    if terminates:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


@pytest.mark.parametrize(
    ("asking", "others", "state", "left"),
    [
        (waiting("uid-v"), [victim()], "chosen", ["ns/v"]),
        (waiting("uid-v"), [victim(terminates=True)], "terminating", ["ns/v"]),
        (waiting("uid-v"), [], "gone", []),
        (waiting(), [], "gone", []),
        (waiting("uid-v", gang=True), [victim()], "chosen", ["ns/v"]),
    ],
    ids=["chosen", "terminating", "gone", "no victims are left in the condition", "for a pod of a gang"],
)
def test_a_preemption_tells_how_far_it_has_come(
    asking: Object, others: list[Object], state: str, left: list[str]
) -> None:
    (row,) = preemptions(snapshot_of(asking, *others)).rows
    found = row.item()
    assert (found["pod"], found["priority"], found["node"], found["state"]) == ("p", 9, "a", state)
    assert (found["victims"], found["devices"]) == (left, [f"{DRIVER}/a/gpu-0"])


def test_a_nomination_by_the_scheduler_alone_is_told_as_such() -> None:
    raw = pod("p", "p-c")
    raw["status"]["nominatedNodeName"] = "a"
    (row,) = preemptions(snapshot_of(raw)).rows
    assert (row.item()["node"], row.item()["state"]) == ("a", "by the scheduler")


@pytest.mark.parametrize(
    "there",
    [pod("p", "p-c"), waiting(gang=True), {**waiting("uid-v"), "spec": {**waiting()["spec"], "nodeName": "a"}}],
    ids=["nothing is kept", "kept for a gang without evictions", "bound"],
)
def test_other_pods_are_in_no_preemption(there: Object) -> None:
    assert [*preemptions(snapshot_of(there)).rows] == []


def test_preemptions_are_filtered_by_namespace() -> None:
    assert [*preemptions(snapshot_of(waiting()), namespace="other").rows] == []
