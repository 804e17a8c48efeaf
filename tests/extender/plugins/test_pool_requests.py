"""ResourcePoolStatusRequests: what the answer says, and who answers when."""

from dataclasses import replace
from typing import Any

import pytest

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import POOL_REQUESTS
from extender.plugins.pool_requests import (
    INCOMPLETE_SECONDS,
    MOST_ANSWERS,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    RETRY_SECONDS,
    PoolRequest,
    PoolRequests,
    answer_to,
)
from extender.tools.offload import at_once
from tests.kit.clusters import DRIVER, NOW, Cluster, Object, claim, local_slice, snapshot_of, taint_rule
from tests.kit.objects.parts import api_object
from tests.kit.servers.memory import Fault, Transport
from tests.kit.virtualtime import in_virtual_time

REQUEST = PoolRequest(DRIVER)
PROFILE = f"{DRIVER}/profile"


def publish(name: str, devices: list[Object], **spec: Any) -> Object:
    """The slice of a node's pool, with further fields of its spec."""
    made = local_slice(name, 0)
    return made | {"spec": made["spec"] | {"devices": devices} | spec}


def counters(amount: str) -> Object:
    return {"consumesCounters": [{"counterSet": "all", "counters": {"slices": {"value": amount}}}]}


def partition(name: str, profile: str, amount: str) -> Object:
    return {"name": name, "attributes": {"profile": {"string": profile}}} | counters(amount)


def divided(*partitions: Object, **spec: Any) -> list[Object]:
    """A pool of two slices: seven counters, and partitions."""
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    sets = publish("a", [], pool=pool, sharedCounters=[{"name": "all", "counters": {"slices": {"value": "7"}}}])
    sets = sets | {"metadata": sets["metadata"] | {"name": "counters"}}
    return [sets, publish("a", list(partitions), pool=pool, **spec)]


def shares(*amounts: str) -> Object:
    """A claim that holds shares of one device."""
    made = claim("shares", allocated=["a/gpu-0"] * len(amounts), at="a")
    for index, (result, amount) in enumerate(
        zip(made["status"]["allocation"]["devices"]["results"], amounts, strict=True)
    ):
        result |= {"consumedCapacity": {"memory": amount}, "shareID": f"c2a5e2a8-33c5-4a5f-a7d1-1d2c3b4a5f6{index}"}
    return made


def numbers(total: int, allocated: int, unavailable: int, slices: int = 1) -> Object:
    available = total - allocated - unavailable
    counted = {"totalDevices": total, "allocatedDevices": allocated, "availableDevices": available}
    return counted | {"unavailableDevices": unavailable, "resourceSliceCount": slices}


GPUS = [{"name": f"gpu-{index}"} for index in range(4)]
TAINTED = {"name": "gpu-9", "taints": [{"key": "broken", "effect": "NoExecute"}]}
NOTED = {"name": "gpu-9", "taints": [{"key": "old", "effect": "None"}]}
MULTIPLE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
PARTS = [partition("whole", "7g", "7"), partition("half-0", "3g", "3"), partition("half-1", "3g", "3")]
GROUPED = {"partitionTypeAttribute": PROFILE}

ANSWERS: dict[str, tuple[list[Object], PoolRequest, Object]] = {
    "free and allocated": (
        [publish("a", GPUS), claim("held", allocated=["a/gpu-0"], at="a")],
        REQUEST,
        numbers(4, 1, 0),
    ),
    "tainted": ([publish("a", [*GPUS, TAINTED])], REQUEST, numbers(5, 0, 1)),
    "a taint that only informs": ([publish("a", [*GPUS, NOTED])], REQUEST, numbers(5, 0, 0)),
    "tainted by a rule": ([publish("a", GPUS), taint_rule("r", device="gpu-1")], REQUEST, numbers(4, 0, 1)),
    "shared": (
        [publish("a", [{"name": f"gpu-{index}"} | MULTIPLE for index in range(2)]), shares("10Gi", "20Gi")],
        REQUEST,
        numbers(2, 1, 0)
        | {
            "shareableSummary": {
                "fullyAvailableDevices": 1,
                "partiallyAvailableDevices": 1,
                "capacity": [{"name": "memory", "total": "160Gi", "consumed": "30Gi", "available": "130Gi"}],
            }
        },
    ),
    "divided, grouped by the driver": (
        [*divided(*PARTS, **GROUPED), claim("held", allocated=["a/half-0"], at="a")],
        REQUEST,
        numbers(3, 1, 0, slices=2)
        | {
            "partitionSummary": [
                {"attribute": PROFILE, "type": "3g", "total": 2, "allocatable": 1},
                {"attribute": PROFILE, "type": "7g", "total": 1, "allocatable": 0},
            ]
        },
    ),
    "divided, grouped by the request": (
        divided(*PARTS),
        replace(REQUEST, partition_type=PROFILE),
        numbers(3, 0, 0, slices=2)
        | {
            "partitionSummary": [
                {"attribute": PROFILE, "type": "3g", "total": 2, "allocatable": 2},
                {"attribute": PROFILE, "type": "7g", "total": 1, "allocatable": 1},
            ]
        },
    ),
    "divided, not grouped": (divided(*PARTS), REQUEST, numbers(3, 0, 0, slices=2)),
    "a partition without type": (
        divided({"name": "odd"} | counters("1"), **GROUPED),
        REQUEST,
        numbers(1, 0, 0, slices=2)
        | {
            "validationError": f'PartitionTypeMissing: device "odd" in pool {DRIVER}/a '
            f'does not carry partition type attribute "{PROFILE}"'
        },
    ),
    "partitions of one type that differ": (
        divided(partition("x", "3g", "3"), partition("y", "3g", "4"), **GROUPED),
        REQUEST,
        numbers(2, 0, 0, slices=2)
        | {
            "validationError": f'PartitionCostMismatch: devices of partition type "3g" in pool {DRIVER}/a '
            "consume different counters"
        },
    ),
    "incomplete": (
        [publish("a", GPUS, pool={"name": "a", "generation": 1, "resourceSliceCount": 2})],
        REQUEST,
        {"validationError": f"PoolIncomplete: pool {DRIVER}/a is incomplete: observed 1/2 slices at generation 1"},
    ),
}


@pytest.mark.parametrize(("objects", "request_", "expected"), ANSWERS.values(), ids=list(ANSWERS))
def test_the_answer_counts_devices_by_the_rules_of_upstream(
    objects: list[Object], request_: PoolRequest, expected: Object
) -> None:
    status = answer_to(request_, snapshot_of(*objects)).status
    head = {"driver": DRIVER, "poolName": "a", "nodeName": "a", "generation": 1}
    assert status == {"poolCount": 1, "pools": [head | expected]}


def test_admin_access_holds_nothing() -> None:
    looking = claim("looking", allocated=["a/gpu-0"], at="a")
    looking["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    (pool,) = answer_to(REQUEST, snapshot_of(publish("a", GPUS), looking)).status["pools"]
    assert pool["allocatedDevices"] == 0


@pytest.mark.parametrize(
    ("request_", "count", "names"),
    [
        (REQUEST, 3, ["a", "b", "c"]),
        (replace(REQUEST, limit=2), 3, ["a", "b"]),
        (replace(REQUEST, pool="b"), 1, ["b"]),
        (replace(REQUEST, pool="x"), 0, []),
        (PoolRequest("nic.example.com"), 0, []),
    ],
    ids=["all", "limited", "one", "unknown pool", "unknown driver"],
)
def test_the_request_chooses_pools(request_: PoolRequest, count: int, names: list[str]) -> None:
    status = answer_to(request_, snapshot_of(*(publish(name, GPUS) for name in "cab"))).status
    assert (status["poolCount"], [pool["poolName"] for pool in status.get("pools", [])]) == (count, names)


class Scene:
    """A cluster with a request, and the task that answers; time passes when the test says."""

    def __init__(self, *objects: Object) -> None:
        self.cluster = Cluster.of(*objects)
        self.transport = Transport(self.cluster.api)
        self.now = 100.0
        self.task = PoolRequests(self.cluster.state, self.transport, lambda: self.now, lambda: NOW, at_once)

    async def asked(self, name: str = "all", driver: str = DRIVER) -> None:
        asked = api_object("ResourcePoolStatusRequest", name, spec={"driver": driver, "limit": 100})
        await self.cluster.api.create(POOL_REQUESTS, asked | {"apiVersion": "resource.k8s.io/v1alpha3"})

    async def after(self, seconds: float) -> Object | None:
        """The status, when the task has had its turns for some time."""
        until = self.now + seconds
        while self.now <= until:
            await self.task.tick()
            self.now += 1
        found: Object | None = (await self.cluster.api.get(POOL_REQUESTS, ObjectKey("", "all"))).get("status")
        return found

    def answers(self) -> int:
        return self.transport.calls.count("update_status resourcepoolstatusrequests")


@in_virtual_time
async def test_a_request_that_nobody_answers_gets_an_answer_once() -> None:
    scene = Scene(publish("a", GPUS))
    await scene.asked()
    assert await scene.after(PATIENCE_SECONDS - 1) is None, "kube-controller-manager may answer"
    await scene.after(PAUSE_SECONDS + 1)
    status = await scene.after(60)
    assert status is not None
    assert status["poolCount"] == 1
    assert status["conditions"] == [
        {
            "type": "Complete",
            "status": "True",
            "lastTransitionTime": "2026-02-01T00:00:00Z",
            "reason": "CalculationComplete",
            "message": "Calculated status for 1 pools",
        }
    ]
    assert scene.answers() == 1


@in_virtual_time
async def test_an_answer_waits_for_missing_slices() -> None:
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    scene = Scene(publish("a", GPUS, pool=pool))
    await scene.asked()
    early, late = [await scene.after(INCOMPLETE_SECONDS - PAUSE_SECONDS), await scene.after(3 * PAUSE_SECONDS)]
    assert early is None
    assert late is not None
    assert late["conditions"][0]["message"] == "Calculated status for 1 pools (1 incomplete)"


@in_virtual_time
async def test_many_requests_are_answered_over_several_turns_and_none_waits_for_those_without_slices() -> None:
    scene = Scene(publish("a", GPUS, pool={"name": "a", "generation": 1, "resourceSliceCount": 2}))
    for number in range(MOST_ANSWERS):
        await scene.asked(f"waiting-{number}")
    for number in range(MOST_ANSWERS):
        await scene.asked(f"other-{number}", "nic.example.com")
    await scene.asked()
    found = []
    for _ in range(3):
        await scene.after(PAUSE_SECONDS - 1)
        found.append(scene.answers())
    assert found == [0, 0, MOST_ANSWERS]


REFUSALS = {"answered meanwhile": (409, "Conflict", 0), "not allowed": (403, "Forbidden", 1)}


@pytest.mark.parametrize(("status", "reason", "warnings"), REFUSALS.values(), ids=list(REFUSALS))
@in_virtual_time
async def test_an_answer_that_is_refused_is_logged_unless_another_answer_came_first(
    status: int, reason: str, warnings: int, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(publish("a", GPUS))
    await scene.asked()
    scene.transport.script("update_status resourcepoolstatusrequests", Fault(refused=ApiError(status, reason, "no")))
    await scene.after(2 * PAUSE_SECONDS)
    assert capsys.readouterr().out.count("pool status request not answered") == warnings


@in_virtual_time
async def test_without_the_right_to_list_requests_it_asks_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(publish("a", GPUS))
    await scene.asked()
    scene.transport.script("list resourcepoolstatusrequests", *[Fault(refused=ApiError(403, "Forbidden", "no"))] * 2)
    await scene.after(RETRY_SECONDS + 1)
    assert capsys.readouterr().out.count("pool status requests not listed") == 2
    assert scene.transport.calls.count("list resourcepoolstatusrequests") == 2
