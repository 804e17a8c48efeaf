"""The search over names."""

import pytest

from extender.answers.observe.console_search import MOST_OF_A_KIND, find_objects
from tests.extender.plugins.gangs.scenes import member
from tests.kit.clusters import GPU, Cluster, claim, client_of, device_class, local_slice, node, pod, snapshot_of

SNAPSHOT = snapshot_of(
    GPU,
    device_class("gpu-large"),
    node("gpu-1"),
    node("other"),
    local_slice("gpu-1", 2),
    pod("train", "held"),
    pod("train-gpu", "used", on="gpu-1"),
    claim("held"),
    *member("g0", "ring", 2),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("train", ["pod ns/train pending", "pod ns/train-gpu bound"]),
        ("NS/Train", ["pod ns/train pending", "pod ns/train-gpu bound"]),
        ("held", ["claim ns/held pending"]),
        ("ring", ["gang ns/ring"]),
        ("gpu-1", ["node gpu-1", "device gpu.example.com/gpu-1/gpu-1", "device gpu.example.com/gpu-1/gpu-0"]),
        ("gpu-l", ["class gpu-large"]),
        ("nothing-like-it", []),
        ("", []),
        ("  ", []),
    ],
)
def test_objects_are_found_by_a_part_of_their_names(text: str, found: list[str]) -> None:
    told = [f"{each.kind} {'/'.join(each.names)} {each.state}".strip() for each in find_objects(text, SNAPSHOT)]
    assert told == found


def test_of_a_kind_the_nearest_names_are_told() -> None:
    names = [f"train-{number:03}" for number in range(300)]
    pauses: list[int] = []
    found = find_objects(
        "train", snapshot_of(*(pod(each, "c") for each in (*names, "train"))), lambda: pauses.append(1)
    )
    assert [each.names[1] for each in found] == ["train", *names[: MOST_OF_A_KIND - 1]]
    assert len(pauses) > 1, "others have their turn meanwhile"


async def test_the_console_asks_for_names_and_for_a_node() -> None:
    cluster = Cluster.of(GPU, node("gpu-1", labels={"zone": "east"}))
    async with client_of(cluster.app()) as client:
        assert (await client.get("/console/search?text=trai")).json()["items"] == []
        found = (await client.get("/console/search?text=gpu")).json()["items"]
        assert [(each["kind"], each["names"]) for each in found] == [("node", ["gpu-1"]), ("class", ["gpu"])]
        assert (await client.get(f"/console/search?text={'x' * 254}")).status_code == 400
        shown = (await client.get("/console/node?node=gpu-1")).json()
        assert (shown["node"], shown["labels"], shown["taints"]) == (
            "gpu-1",
            {"kubernetes.io/hostname": "gpu-1", "zone": "east"},
            [],
        )
        missing = await client.get("/console/node?node=no")
        assert (missing.status_code, missing.json()["error"]) == (404, "there is no node no")
