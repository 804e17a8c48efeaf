"""The history of devices: who has held one in the last hour, and for how much of the hour that is known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allocator import DeviceId
from extender.answers.observe.device_history import KEPT, DeviceHistory, HistoryKeeper
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.tools.offload import at_once
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, app_over, claim, client_of, local_slice, node

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
GPU_0 = DeviceId(DRIVER, "a", "gpu-0")
MINUTE = timedelta(minutes=1)


class Scene:
    """A cluster whose history is looked at after each change, a minute later."""

    def __init__(self, *objects: Object, most: int = 100) -> None:
        self.cluster = Cluster.of(GPU, node("a"), local_slice("a", devices=4), *objects)
        self.now = STARTED
        self.history = DeviceHistory(self.cluster.state, lambda: self.now, most)
        self.look()

    def look(self) -> None:
        self.history.look(self.cluster.state.snapshot)

    def change(self, obj: Object) -> None:
        self.now += MINUTE
        self.cluster.load(obj)
        self.look()

    async def release(self, name: str) -> None:
        self.now += MINUTE
        await self.cluster.api.delete(CLAIMS, ObjectKey("ns", name))
        self.look()

    def holds(self, device: DeviceId = GPU_0) -> list[tuple[str, Any, Any]]:
        """Name of the claim, and the minutes since when and until when it has held the device."""
        found = self.history.of(device, self.cluster.state.snapshot)
        return [(each.claim.name, self._minute(each.since), self._minute(each.until)) for each in found]

    @staticmethod
    def _minute(time: datetime | None) -> Any:
        return None if time is None else (time - STARTED) / MINUTE


def held(name: str, device: str = "a/gpu-0", **options: Any) -> Object:
    return claim(name, allocated=[device], at="a", **options)


async def test_a_device_has_the_claims_that_held_it_the_latest_first() -> None:
    scene = Scene()
    scene.change(held("one"))
    await scene.release("one")
    scene.change(held("two"))
    assert scene.holds() == [("two", 3, None), ("one", 1, 2)]
    assert scene.holds(DeviceId(DRIVER, "a", "gpu-1")) == []


async def test_since_when_a_claim_holds_a_device_is_not_known_if_it_did_so_before() -> None:
    scene = Scene(held("early"))
    assert scene.holds() == [("early", None, None)]
    await scene.release("early")
    assert scene.holds() == [("early", None, 1)]


def test_who_has_allocated_may_say_when_that_was() -> None:
    early = held("early")
    early["status"]["allocation"]["allocationTimestamp"] = "2025-12-31T23:50:00Z"
    assert Scene(early).holds() == [("early", -10, None)]


def test_a_hold_names_all_for_whom_the_claim_was_reserved() -> None:
    scene = Scene()
    scene.change(held("shared", users=["p", "q"]))
    (hold,) = scene.history.of(GPU_0, scene.cluster.state.snapshot)
    assert hold.users == ("p", "q")


async def test_what_ended_more_than_an_hour_ago_is_forgotten() -> None:
    scene = Scene()
    scene.change(held("one"))
    await scene.release("one")
    scene.now += KEPT
    scene.look()
    assert scene.holds() == [("one", 1, 2)]
    scene.now += MINUTE
    scene.look()
    assert scene.holds() == []
    assert scene.history.complete_after() == scene.now - KEPT


async def test_more_holds_than_are_remembered_shorten_the_time_that_is_known() -> None:
    scene = Scene(most=2)
    for number in range(3):
        scene.change(held(f"claim-{number}"))
        await scene.release(f"claim-{number}")
    assert [name for name, *_ in scene.holds()] == ["claim-2", "claim-1"]
    assert scene.history.complete_after() == STARTED + 2 * MINUTE


async def test_nothing_is_noted_before_the_claims_are_known() -> None:
    scene = Scene()
    history = DeviceHistory(scene.cluster.state, lambda: scene.now)
    keeper = HistoryKeeper(scene.cluster.state, history, at_once)
    scene.cluster.state.doubt(CLAIMS, "claims are not synced")
    scene.change(held("early"))
    await keeper.tick()
    scene.cluster.state.trust(CLAIMS)
    await keeper.tick()
    (hold,) = history.of(GPU_0, scene.cluster.state.snapshot)
    assert hold.since is None


async def test_the_history_on_http() -> None:
    cluster = Cluster.of(GPU, node("a"), local_slice("a"), held("early", users=["p"]))
    extender = cluster.extender()
    extender.overview.history.look(cluster.state.snapshot)
    async with client_of(app_over(extender)) as asked:
        found = (await asked.get(f"/console/history?driver={DRIVER}&pool=a&device=gpu-0")).json()
        refused = await asked.get("/console/history?driver=x")
    assert found["holds"] == [{"claim": "ns/early", "users": ["p"], "since": None, "until": None}]
    assert refused.status_code == 400


@pytest.mark.parametrize("field", ["driver", "pool", "device"])
async def test_a_device_has_a_driver_a_pool_and_a_name(field: str) -> None:
    given = {"driver": DRIVER, "pool": "a", "device": "gpu-0"}
    del given[field]
    async with client_of(Cluster.of().app()) as asked:
        reply = await asked.get("/console/history", params=given)
    assert (reply.status_code, field in reply.text) == (400, True)
