"""The lease that replicas share: one of them holds it at a time."""

from datetime import datetime, timedelta

import pytest

from extender.cluster.writes.lease import SHORT, SharedLease
from extender.kube.api import ApiError, ObjectKey, RawObject, WriteRefusedError
from extender.kube.resources import LEASES
from tests.kit import virtualtime
from tests.kit.servers.memory import NOW, Fault, Transport, memory_api, writes

KEY = ObjectKey("kube-system", "dra-extender-work")
UPDATE = "update leases"
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")


class Scene:
    """Two replicas, each with a lease of its own to the same object."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.transport = Transport(memory_api())
        self.one, self.other = (
            SharedLease(self.transport, KEY, name, self.now, lambda: self.seconds) for name in ("one", "other")
        )

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def take(self, lease: SharedLease) -> bool:
        return virtualtime.run(lease.take())

    @property
    def spec(self) -> RawObject:
        found: RawObject = virtualtime.run(self.transport.api.get(LEASES, KEY))["spec"]
        return found


def test_it_is_held_from_the_second_time_on() -> None:
    """Until then the watch has shown what the last holder has written."""
    scene = Scene()
    assert [scene.take(scene.one) for _ in range(3)] == [False, True, True]
    assert scene.spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": SHORT.lasts,
        "renewTime": "2026-01-02T03:04:05.000000Z",
    }


def test_another_replica_waits() -> None:
    scene = Scene()
    scene.take(scene.one)
    assert [scene.take(scene.other) for _ in range(3)] == [False, False, False]
    assert scene.spec["holderIdentity"] == "one"


def test_a_lease_that_is_given_back_is_free_at_once() -> None:
    scene = Scene()
    scene.take(scene.one)
    scene.seconds = SHORT.renewal
    virtualtime.run(scene.one.give_back())
    assert [scene.take(scene.other) for _ in range(2)] == [False, True]
    assert [scene.take(scene.one) for _ in range(2)] == [False, False]


def test_a_lease_whose_holder_is_gone_is_free_after_a_while() -> None:
    scene = Scene()
    scene.take(scene.one)
    scene.take(scene.other)
    scene.seconds = SHORT.lasts - 1
    assert [scene.take(scene.other) for _ in range(2)] == [False, False]
    scene.seconds = SHORT.lasts
    assert [scene.take(scene.other) for _ in range(2)] == [False, True]


def test_its_holder_renews_it_from_time_to_time() -> None:
    scene = Scene()
    for scene.seconds in range(2 * SHORT.lasts):
        scene.take(scene.one)
        scene.take(scene.other)
    assert scene.spec["holderIdentity"] == "one"
    assert scene.transport.calls.count(UPDATE) == 5


def test_who_was_too_slow_has_it_no_more() -> None:
    scene = Scene()
    scene.take(scene.one)
    scene.take(scene.other)
    scene.seconds = SHORT.lasts
    scene.take(scene.other)
    assert [scene.take(scene.one) for _ in range(2)] == [False, False]
    assert scene.spec["holderIdentity"] == "other"


def test_of_two_that_make_it_at_once_one_has_it() -> None:
    scene = Scene()

    async def first() -> None:
        await scene.other.take()

    scene.transport.script("create leases", Fault(before=first))
    assert [scene.take(scene.one) for _ in range(2)] == [False, False]
    assert scene.spec["holderIdentity"] == "other"


@pytest.mark.parametrize("call", ["get leases", "create leases"])
def test_a_refusal_names_the_lease(call: str) -> None:
    scene = Scene()
    scene.transport.script(call, Fault(refused=FORBIDDEN))
    with pytest.raises(WriteRefusedError, match=r"lease kube-system/dra-extender-work: .*not allowed"):
        scene.take(scene.one)


def test_it_is_not_given_back_between_two_pods() -> None:
    scene = Scene()
    scene.take(scene.one)
    scene.seconds = SHORT.renewal - 1
    virtualtime.run(scene.one.give_back())
    assert scene.take(scene.one)
    assert writes(scene.transport.calls) == ["create leases"]


def test_what_is_not_held_is_not_given_back() -> None:
    scene = Scene()
    virtualtime.run(scene.one.give_back())
    assert writes(scene.transport.calls) == []
