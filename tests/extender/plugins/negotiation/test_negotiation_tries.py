"""When controllers are asked again for claims without a pod, and for pods that have a node."""

from dataclasses import replace
from itertools import pairwise

import pytest

from extender.cluster.writes.lease import LONG, SharedLease
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.immediate_claims import IMMEDIATE_CLAIMS, WAITS
from extender.plugins.negotiation.protocol import ALLOCATE, UNSUITABLE_NODES
from tests.extender.plugins.immediate_claims.test_immediate_claims import ROOM
from tests.extender.plugins.immediate_claims.test_immediate_claims import Scene as ImmediateScene
from tests.extender.plugins.immediate_claims.test_immediate_claims import immediate as waiting
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, Scene, negotiated_class, pods
from tests.kit import virtualtime
from tests.kit.clusters import GPU, Object, claim, local_slice, node, parsed, pinned, pod, rejected, request
from tests.kit.controllers import Fault, Licenses
from tests.kit.virtualtime import in_virtual_time


def immediate() -> Object:
    found = claim("p-c", LICENSE)
    found["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
    return found


@pytest.mark.parametrize("is_immediate", [True, False], ids=["immediate claim", "pod that has a node"])
@in_virtual_time
async def test_controller_that_refuses_at_the_last_moment_is_not_asked_all_the_time(is_immediate: bool) -> None:
    """The mark and the release of a try are changes of the claim: they must not cause the next try."""
    wanted = [immediate()] if is_immediate else [pinned("p", "p-c", on="m"), claim("p-c", LICENSE)]
    licenses = Licenses(faults={ALLOCATE: [Fault(answer={"refused": "not now", "claims": []})] * 4})
    scene = Scene(*wanted, licenses=licenses)
    tried = []
    while len(licenses.asked(ALLOCATE)) < 5:
        before = len(licenses.asked(ALLOCATE))
        await scene.tick()
        tried += [scene.seconds] * (len(licenses.asked(ALLOCATE)) - before)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == pytest.approx([2, 4, 8, 16], abs=0.5)
    assert "uid-p-c" in licenses.held


@in_virtual_time
async def test_immediate_claim_is_allocated_as_soon_as_its_controller_has_released_another() -> None:
    scene = Scene(*pods("q"), licenses=Licenses(left=1))
    await scene.filter("q")
    assert await scene.bind("q") == ""
    await scene.cluster.api.create(CLAIMS, immediate())
    for _ in range(12):
        await scene.tick(10.0)
    assert await scene.allocation() is None
    await scene.end("q")
    for _ in range(4):
        await scene.tick()
    assert await scene.allocation() is not None


@in_virtual_time
async def test_pod_that_an_earlier_process_has_rejected_is_woken_when_its_controller_has_room() -> None:
    scene = Scene(*rejected(*pods("p", "q")), licenses=Licenses(left=0))
    await scene.filter("p")
    later = scene.replica()
    await scene.filter("q", by=later)
    scene.licenses.left = 2
    for _ in range(8):
        await scene.tick(1.0, by=later)
    assert await scene.woken("p")
    assert await scene.woken("q")


@in_virtual_time
async def test_pod_that_was_rejected_before_the_watch_shows_it_is_woken_when_its_controller_has_room() -> None:
    raw, claimed = pods("p")
    scene = Scene(claimed, licenses=Licenses(left=0))
    await scene.filter_of(replace(parsed(raw), resource_version="99999"))
    asked = len(scene.licenses.asked(UNSUITABLE_NODES))
    await scene.tick(60.0)
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == asked, "perhaps a caller has made it up"
    scene.cluster.load(raw)
    scene.licenses.left = 1
    for _ in range(4):
        await scene.tick(1.0)
    assert await scene.woken("p")


@in_virtual_time
async def test_pod_that_was_rejected_before_the_watch_shows_its_claim_is_woken_once_its_controller_accepts_it() -> None:
    """Filter asked no controller, since the claim could not be read; the pod itself may come late, too."""
    raw, claimed = pods("p")
    scene = Scene(licenses=Licenses(left=1))
    assert not (await scene.filter_of(replace(parsed(raw), resource_version="99999"))).passed
    await scene.tick(60.0)
    assert not scene.licenses.asked(UNSUITABLE_NODES)
    scene.cluster.load(claimed)
    await scene.tick(1.0)
    scene.cluster.load(raw)
    for _ in range(4):
        await scene.tick(1.0)
    assert await scene.woken("p")


@in_virtual_time
async def test_pod_that_lacks_a_device_is_woken_also_if_controllers_have_answered_about_many_others_meanwhile() -> None:
    """What is remembered of a controller that accepts the pod is part of the decision to wake it."""
    names = [f"q{number}" for number in range(300)]
    taken = [claim("held", allocated=["n/gpu-0"], at="n", users=["u"]), pod("u", "held", on="n")]
    both = [pod("p", "p-gpu", "p-c"), claim("p-gpu", request("gpu")), claim("p-c", LICENSE)]
    world = (GPU, negotiated_class(), node("n"), local_slice("n"))
    scene = Scene(*taken, *both, *pods(*names), licenses=Licenses(left=1000), world=world)
    assert not (await scene.filter("p", "n")).passed
    for name in names:
        assert (await scene.filter(name, "n")).passed
    await scene.end("u")
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "held"))
    await scene.cluster.settle()
    await scene.tick()
    await scene.tick()
    assert await scene.woken("p")


def test_the_first_event_of_a_claim_has_the_reason_also_if_another_replica_had_the_lease() -> None:
    scene = ImmediateScene(*ROOM, negotiated_class(), waiting("c", LICENSE))
    theirs = SharedLease(scene.api, IMMEDIATE_CLAIMS, "theirs", scene.now, scene.clock, LONG)
    virtualtime.run(theirs.take())
    scene.look(seconds=1, ticks=9)
    assert scene.notes == []
    virtualtime.run(theirs.release())
    scene.look(seconds=1, ticks=9)
    reason = f"1 controller {NAME} of device class license is not in the settings"
    assert scene.notes == [(WAITS, f"the claim waits to be allocated: {reason}")]
