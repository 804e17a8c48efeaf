"""Marks that somebody has changed: users may write to claims, and no license may be kept so."""

from pathlib import Path

import pytest

from extender.cluster.controller_marks import LAST_ATTEMPT
from extender.cluster.objects.claims import MARK
from extender.kube.api import ObjectKey, timestamp
from extender.kube.resources import CLAIMS
from tests.extender.plugins.negotiation.scenes import NAME, Scene, pods
from tests.extender.plugins.negotiation.transport_scenes import KitScene
from tests.extender.plugins.negotiation.transport_scenes import Licenses as TransportLicenses
from tests.kit.clusters import NOW
from tests.kit.controllers import Licenses
from tests.kit.virtualtime import in_virtual_time

OTHER = "other.example.com"


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({MARK: "nonsense"}, id="not a mark"),
        pytest.param({}, id="no annotation"),
        pytest.param({MARK: f"{NAME} 1 released"}, id="released by nobody"),
        pytest.param({MARK: f"{NAME} 0 releasing"}, id="a release that is overtaken"),
        pytest.param({MARK: f"{NAME} 0 2026-01-01T00:00:00Z"}, id="an attempt that is overtaken"),
        pytest.param({MARK: f"{NAME} 7 2126-01-01T00:00:00Z"}, id="an allocation without end"),
        pytest.param({MARK: f"{NAME} {'9' * 15} releasing"}, id="the last attempt that there is"),
        pytest.param({MARK: f"{NAME} {LAST_ATTEMPT} 2026-01-01T00:00:00Z"}, id="an allocation with the last attempt"),
        pytest.param({MARK: f"{NAME} {LAST_ATTEMPT + 1} releasing"}, id="an attempt after the last one"),
        pytest.param({MARK: f"{OTHER} 5 releasing"}, id="of another controller"),
    ],
)
@pytest.mark.parametrize("is_deleted", [False, True])
@in_virtual_time
async def test_mark_that_somebody_has_changed_is_released_by_the_controller_of_the_class(
    annotations: dict[str, str], *, is_deleted: bool
) -> None:
    scene = Scene(*pods("p"), others={OTHER: Licenses()})
    await scene.bind()
    raw = await scene.claim()
    raw["metadata"]["annotations"] = annotations
    await scene.cluster.api.update(CLAIMS, raw)
    if is_deleted:
        await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "p-c"))
    await scene.end()
    await scene.tick()
    assert scene.licenses.held == {}
    if is_deleted:
        assert not await scene.exists()
    else:
        assert (await scene.mark()).endswith(" released")
        assert await writes(scene) == 0


@pytest.mark.parametrize("latest", [LAST_ATTEMPT - 1, LAST_ATTEMPT, LAST_ATTEMPT + 1])
@in_virtual_time
async def test_controller_that_tells_the_last_attempts_is_asked_without_end_of_writes(latest: int) -> None:
    scene = Scene(*pods("p"))
    scene.licenses.ended["uid-p-c"] = latest
    await changed(scene, f"{NAME} 1 releasing")
    await scene.tick()
    mark = (await scene.claim())["metadata"]["annotations"][MARK]
    assert mark.endswith(" released") == (latest <= LAST_ATTEMPT)
    assert await writes(scene) == 0


@in_virtual_time
async def test_claim_without_a_further_attempt_is_refused_and_not_written() -> None:
    scene = Scene(*pods("p"))
    await changed(scene, f"{NAME} {LAST_ATTEMPT} released")
    place = f"node n: claim ns/p-c: metadata.annotations[{MARK}]"
    for _ in range(2):
        error = await scene.bind()
        assert error == f"{place} was changed: there is no attempt after {LAST_ATTEMPT}. Make the claim anew"
    assert await writes(scene) == 0
    assert scene.licenses.held == {}


@in_virtual_time
async def test_controller_of_contexts_is_not_asked_for_ever_for_a_mark_of_nobody(tmp_path: Path) -> None:
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: TransportLicenses()})
    await changed(scene, "nobody.example.com 1 releasing")
    for _ in range(10):
        await scene.turn(1.0)
    before = await scene.claim()
    for _ in range(120):
        await scene.turn(1.0)
    assert await scene.claim() == before


async def writes(scene: Scene) -> int:
    """How often the claim is written in two minutes."""
    found = 0
    for _ in range(120):
        before = (await scene.claim())["metadata"]["resourceVersion"]
        await scene.tick(1.0)
        found += (await scene.claim())["metadata"]["resourceVersion"] != before
    return found


@in_virtual_time
async def test_mark_that_is_changed_before_the_allocation_and_after_it_keeps_no_license() -> None:
    """The attempt is first made high, so that the allocation has it, and then low: each release seems overtaken."""
    scene = Scene(*pods("p"))
    await changed(scene, f"{NAME} {'9' * 13} released")
    assert await scene.bind() == ""
    assert scene.licenses.held["uid-p-c"] == ("n", 10**13)
    await changed(scene, f"{NAME} 1 releasing")
    await scene.end()
    await scene.tick()
    assert scene.licenses.held == {}
    assert await scene.mark() == f"{NAME} {10**13 + 1} released"


@in_virtual_time
async def test_claim_whose_attempt_was_made_low_can_be_allocated_again() -> None:
    scene = Scene(*pods("p"))
    scene.licenses.ended["uid-p-c"] = 8
    await changed(scene, f"{NAME} 3 released")
    assert await scene.bind() == f"node n: controller {NAME}: this attempt is overtaken"
    await scene.tick()
    assert await scene.mark() == f"{NAME} 9 released"
    assert await scene.bind() == ""


@in_virtual_time
async def test_mark_of_a_controller_that_does_not_exist_keeps_no_license() -> None:
    scene = Scene(*pods("p"))
    await scene.bind()
    await changed(scene, "nobody.example.com 1 releasing")
    await scene.end()
    await scene.tick()
    assert scene.licenses.held == {}
    assert await scene.mark() == "nobody.example.com 1 releasing"


async def changed(scene: Scene, mark: str) -> None:
    """Somebody writes another mark on the claim."""
    raw = await scene.claim()
    raw["metadata"]["annotations"] = {MARK: mark}
    await scene.cluster.api.update(CLAIMS, raw)


@in_virtual_time
async def test_mark_of_another_controller_of_contexts_keeps_no_license(tmp_path: Path) -> None:
    """The other controller is always the first to see the request to deallocate."""
    own = TransportLicenses()
    controllers = {OTHER: TransportLicenses(), NAME: own}
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers=controllers)
    assert await scene.schedule() in {"m", "n"}
    raw = await scene.claim()
    raw["metadata"]["annotations"][MARK] = f"{OTHER} 7 {timestamp(NOW)}"
    await scene.cluster.api.update(CLAIMS, raw)
    await scene.end()
    for _ in range(8):
        await scene.turn(3.0)
    assert own.outside == {}
    assert await scene.mark() == f"{OTHER} 8 released"
