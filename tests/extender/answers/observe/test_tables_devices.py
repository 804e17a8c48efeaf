"""The table of devices: what is free can be handed out, and what is in the way of the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from httpx import AsyncClient
from prometheus_client import generate_latest

from allocator import AllocationResult, DeviceId, DeviceResult, Features
from allocator.checks import DeviceState
from allocator.device_states import DeviceKind, PoolStates
from extender.answers.observe.device_states import DeviceStates
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.kube.api import Event, EventType
from extender.kube.resources import NODES, RESOURCES, SLICES
from tests.kit.clusters import (
    DRIVER,
    Cluster,
    Object,
    app_over,
    claim,
    client_of,
    device_class,
    local_slice,
    network_slice,
    node,
    solver,
    state_of,
    taint_rule,
    with_uid,
)
from tests.kit.objects.mig import PARTITIONS, partition, partitioned

SMALL = "1g.5gb"
SMALL_CLASS = device_class("small", selectors=[f'device.attributes["{DRIVER}"].profile == "{SMALL}"'])
PROFILED = device_class("profiled", selectors=[f'device.attributes["{DRIVER}"].profile != ""'])


def mig_cluster() -> Cluster:
    """Two A100 with MIG: one is cut into seven small partitions, which are held; of the other, one half is held."""
    held = {f"small-{place}": partition(0, SMALL, place) for place in range(7)} | {"half": partition(1, "3g.20gb", 0)}
    claims = [claim(name, allocated=[f"a/{device}"], at="a") for name, device in held.items()]
    return Cluster.of(node("a"), *map(with_uid, partitioned("a", gpus=2)), *claims, SMALL_CLASS, PROFILED)


async def items(client: AsyncClient, path: str) -> list[Any]:
    response = await client.get(path, headers={"accept": "application/json"})
    assert response.status_code == 200, response.text
    return list(response.json()["items"])


async def numbers(client: AsyncClient, query: str, kind: str = "devices") -> dict[str, int]:
    """How many are in each state."""
    found = await items(client, f"/devices?count=true&{query}")
    return {each["state"]: each[kind] for each in found if each[kind] or each["state"] == "free"}


# --- partitions ----------------------------------------------------------------------------------------------


async def test_partitions_whose_counters_are_used_up_are_not_free() -> None:
    cluster = mig_cluster()
    async with client_of(cluster.app()) as client:
        free = [each["device"] for each in await items(client, "/devices?free=true")]
        assert free == [
            *(partition(1, SMALL, place) for place in (4, 5, 6)),
            partition(1, "2g.10gb", 4),
            partition(1, "3g.20gb", 4),
        ]
        states = {"free": 5, "blocked": 2 * PARTITIONS - 15, "allocated": 8}
        assert await numbers(client, "", "partitions") == states
        (pool,) = await items(client, "/pools")
        assert (pool["devices"], pool["free"], pool["states"]) == (2, 0, {"blocked": 2})
        assert pool["partitions"] == states


async def test_a_gpu_and_its_partitions_are_counted_apart_and_by_driver() -> None:
    other = local_slice("b", 3)
    other["spec"]["driver"] = "nic.example.com"
    cluster = Cluster.of(node("a"), node("b"), *map(with_uid, partitioned("a", gpus=2)), other)
    async with client_of(cluster.app()) as client:
        assert await items(client, "/devices?count=true") == [
            {"driver": DRIVER, "state": "free", "devices": 2, "partitions": 2 * PARTITIONS - 2},
            {"driver": "nic.example.com", "state": "free", "devices": 3, "partitions": 0},
        ]
        whole = [each["device"] for each in await items(client, "/devices?pool=a") if each["kind"] == "physical"]
        assert whole == [partition(0, "7g.40gb", 0), partition(1, "7g.40gb", 0)]


async def test_a_blocked_partition_names_the_counter_and_the_claims() -> None:
    async with client_of(mig_cluster().app()) as client:
        found = {each["device"]: each for each in await items(client, "/devices?state=blocked")}
        small = found[partition(1, SMALL, 0)]
        assert small["claims"] == []
        assert small["why"] == "0 of 1 left of counter gpu-1/memory-slice-0, 1 needed"
        assert small["blockedBy"] == ["ns/half"]
        half = found[partition(0, "3g.20gb", 4)]
        assert half["why"] == "0 of 1 left of counter gpu-0/memory-slice-4, 1 needed, and 2 more counters are short"
        assert half["blockedBy"] == ["ns/small-4", "ns/small-5", "ns/small-6"]
        assert found[partition(1, "7g.40gb", 0)]["blockedBy"] == ["ns/half"]


async def test_the_metric_counts_blocked_partitions_as_blocked() -> None:
    cluster = mig_cluster()
    text = generate_latest(cluster.service().metrics.registry).decode()
    partitions = {"free": 5, "blocked": 2 * PARTITIONS - 15, "allocated": 8, "clash": 0}
    for kind, counts in {"partition": partitions, "physical": {"free": 0, "blocked": 2}}.items():
        for state, number in counts.items():
            assert f'dra_extender_devices{{driver="{DRIVER}",kind="{kind}",state="{state}"}} {number}.0' in text


# --- shares, clashes, nodes ----------------------------------------------------------------------------------


def share(name: str, share_id: str, memory: str) -> Object:
    """A claim with a share of ``gpu-0`` of node a."""
    found = claim(name, allocated=["a/gpu-0"], at="a")
    (result,) = found["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": share_id, "consumedCapacity": {"memory": memory}}
    return found


SHAREABLE: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}
ONE, TWO = "6a1f43f0-6b0a-4a57-a6d5-6f4f5c1e1c6e", "6a1f43f0-6b0a-4a57-a6d5-6f4f5c1e1c6f"


@pytest.mark.parametrize(
    ("claims", "state", "why"),
    [
        ([], "free", ""),
        ([share("x", ONE, "4Gi")], "shared", "6Gi of 10Gi memory left"),
        ([share("x", ONE, "4Gi"), share("y", TWO, "6Gi")], "allocated", "0 of 10Gi memory left"),
        ([share("x", ONE, "4Gi"), share("y", TWO, "7Gi")], "clash", "-1Gi of 10Gi memory left"),
    ],
)
async def test_a_shared_device_tells_what_is_left(claims: Sequence[Object], state: str, why: str) -> None:
    cluster = Cluster.of(node("a"), local_slice("a", **SHAREABLE), *claims)
    async with client_of(cluster.app()) as client:
        (found,) = await items(client, "/devices")
        assert (found["state"], found["why"]) == (state, why)
        assert found["claims"] == [f"ns/{each['metadata']['name']}" for each in claims]


async def test_a_device_that_two_claims_hold_is_a_clash_and_names_both() -> None:
    twice = [claim(name, allocated=["a/gpu-0"], at="a") for name in ("x", "y")]
    async with client_of(Cluster.of(node("a"), local_slice("a"), *twice).app()) as client:
        (found,) = await items(client, "/devices?state=clash")
        assert found["claims"] == ["ns/x", "ns/y"]


async def test_a_device_is_free_only_while_a_node_reaches_it() -> None:
    cluster = Cluster.of(local_slice("a"), network_slice("net"))
    async with client_of(cluster.app()) as client:
        found = [(each["pool"], each["state"], each["why"]) for each in await items(client, "/devices")]
        assert found == [
            ("a", "unusable", "node a is not known"),
            ("net", "unusable", "no known node reaches it"),
        ]
        await cluster.api.create(NODES, node("a"))
        assert {each["state"] for each in await items(client, "/devices")} == {"free"}


async def test_a_taint_of_a_rule_names_the_rule() -> None:
    cluster = Cluster.of(node("a"), local_slice("a"), taint_rule("maintenance", driver=DRIVER))
    async with client_of(cluster.app()) as client:
        (found,) = await items(client, "/devices")
        assert (found["state"], found["taints"]) == ("tainted", ["broken:NoSchedule"])
        assert found["why"] == "broken:NoSchedule by DeviceTaintRule maintenance"


# --- classes, numbers and wide rows --------------------------------------------------------------------------


async def test_devices_of_a_class_are_those_that_its_selectors_match() -> None:
    async with client_of(mig_cluster().app()) as client:
        found = await items(client, "/devices?class=small&free=true")
        assert [each["device"] for each in found] == [partition(1, SMALL, place) for place in (4, 5, 6)]
        assert await numbers(client, "class=small", "partitions") == {"free": 3, "blocked": 4, "allocated": 7}
        assert await numbers(client, "class=small&state=free", "partitions") == {"free": 3}
        assert await numbers(client, "class=small&free=false", "partitions") == {"blocked": 4, "allocated": 7}


async def test_how_many_are_free_is_told_although_none_is() -> None:
    cluster = Cluster.of(node("a"), local_slice("a"), claim("x", allocated=["a/gpu-0"], at="a"))
    async with client_of(cluster.app()) as client:
        assert await numbers(client, "") == {"free": 0, "allocated": 1}
        assert await numbers(client, "state=free") == {"free": 0}
        assert await numbers(client, "pool=b") == {}


async def test_devices_on_which_a_selector_fails_are_left_out_and_told() -> None:
    cluster = Cluster.of(node("b"), local_slice("b", devices=2), PROFILED)
    async with client_of(cluster.app()) as client:
        found = (await client.get("/devices?class=profiled&format=json")).json()
        assert found["items"] == []
        failures = (
            "2 devices are left out, because a selector of class profiled fails: "
            f"selector 0 on {DRIVER}/b/gpu-0: no such key: profile"
        )
        assert found["note"] == f'{failures}; there are devices, but none with class="profiled"'
        text = (await client.get("/devices?class=profiled&count=true")).text
        assert text.startswith(f"DRIVER   STATE   DEVICES   PARTITIONS\n# {failures}")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("class=smal", 'class: there is no device class "smal"; did you mean small?'),
        ("class=other-thing", 'class: there is no device class "other-thing"'),
        ("clas=small", 'unknown parameter "clas", did you mean "class"?'),
        ("count=perhaps", 'count: expected true or false, not "perhaps"'),
        ("wide=2", 'wide: expected true or false, not "2"'),
    ],
)
async def test_an_unknown_class_is_an_error_that_names_it(query: str, error: str) -> None:
    async with client_of(mig_cluster().app()) as client:
        response = await client.get(f"/devices?{query}")
        assert response.status_code == 400
        assert response.json()["error"] == error


async def test_wide_rows_have_attributes_and_what_is_left_of_capacities() -> None:
    published = {
        "model": {"string": "A100"},
        "healthy": {"bool": True},
        "numa": {"int": 1},
        "driverVersion": {"version": "1.2.3"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    }
    cluster = Cluster.of(node("a"), local_slice("a", **SHAREABLE, attributes=published), share("x", ONE, "4Gi"))
    async with client_of(cluster.app()) as client:
        (found,) = await items(client, "/devices?wide=true")
        assert found["attributes"] == {
            "model": "A100",
            "healthy": True,
            "numa": 1,
            "driverVersion": "1.2.3",
            "resource.kubernetes.io/pcieRoot": "pci0000:00",
        }
        assert found["capacity"] == {"memory": {"left": "6Gi", "total": "10Gi"}}
        heading, row = (await client.get("/devices?wide=true")).text.splitlines()
        assert heading.endswith(
            "ATTRIBUTES".ljust(heading.index("CAPACITY") - heading.index("ATTRIBUTES")) + "CAPACITY"
        )
        assert row[heading.index("ATTRIBUTES") :].split("   ")[0] == (
            "model=A100, healthy=true, numa=1, driverVersion=1.2.3, resource.kubernetes.io/pcieRoot=pci0000:00"
        )
        assert row.endswith("memory 6Gi/10Gi")


async def test_selectors_that_take_too_long_are_an_error() -> None:
    seconds = count(0, 10)
    slow = replace(solver(), clock=lambda: float(next(seconds)))
    cluster = mig_cluster()
    extender = make_extender(cluster.api, cluster.state, slow, Settings())
    async with client_of(app_over(extender)) as client:
        response = await client.get("/devices?class=small")
        assert response.status_code == 503
        assert response.json() == {
            "error": "the selectors of the class take too long; ask for one driver, pool, node or state"
        }


# --- what is remembered --------------------------------------------------------------------------------------

POOLS = ("a", "b", "net")


class Remembered:
    """Which pools are judged again after a change."""

    def __init__(self) -> None:
        self.state = state_of([node("a"), node("b"), local_slice("a"), local_slice("b"), network_slice("net")])
        self.states = DeviceStates(Features())
        self.before = self.found()

    def found(self) -> dict[str, PoolStates]:
        snapshot = self.state.snapshot
        states_of = self.states.at(snapshot)
        return {each.pool: states_of(each) for each in sorted(snapshot.inventory.pools)}

    def changed(self) -> set[str]:
        before, self.before = self.before, self.found()
        return {name for name, each in self.before.items() if each is not before.get(name)}


def modified(obj: Object) -> Event:
    return Event(EventType.MODIFIED, RESOURCES[obj["kind"]], obj)


CHANGES: list[tuple[str, Callable[[ClusterState], object], set[str]]] = [
    ("nothing", lambda _: None, set()),
    (
        "a device is held",
        lambda state: state.assume("u", AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "a", "gpu-0")),)), "p"),
        {"a"},
    ),
    ("a slice", lambda state: state.apply(modified(local_slice("b", devices=2))), {"b"}),
    ("a taint rule", lambda state: state.apply(modified(taint_rule("t", driver=DRIVER))), {*POOLS}),
    ("a taint rule for a pool", lambda state: state.apply(modified(taint_rule("t", driver=DRIVER, pool="a"))), {"a"}),
    ("labels of a node", lambda state: state.apply(modified(node("a", labels={"x": "y"}))), {"a", "net"}),
    ("other fields of a node", lambda state: state.apply(modified(node("a", allocatable={"x.com/y": "1"}))), set()),
    ("a node is new", lambda state: state.apply(modified(node("c"))), {"net"}),
    ("a node is gone", lambda state: state.apply(Event(EventType.DELETED, NODES, node("b"))), {"b", "net"}),
]


@pytest.mark.parametrize(("change", "judged"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_only_pools_that_a_change_concerns_are_judged_again(
    change: Callable[[ClusterState], object], judged: set[str]
) -> None:
    remembered = Remembered()
    change(remembered.state)
    assert remembered.changed() == judged
    assert remembered.changed() == set()


def test_a_count_forgets_pools_that_are_gone() -> None:
    remembered = Remembered()
    assert remembered.states.count(remembered.state.snapshot)[DRIVER, DeviceKind.PHYSICAL, DeviceState.FREE] == 3
    assert remembered.changed() == set()
    remembered.state.apply(Event(EventType.DELETED, SLICES, local_slice("b")))
    assert remembered.states.count(remembered.state.snapshot)[DRIVER, DeviceKind.PHYSICAL, DeviceState.FREE] == 2
