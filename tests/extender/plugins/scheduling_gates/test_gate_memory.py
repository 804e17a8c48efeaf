"""What is kept of pods at the gate has a bound, and whatever fills it, a pod that fits has its turn."""

from itertools import pairwise

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE, MOST_MEMBERS, Pod
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.scheduling_gates.gated_pods import GatedPods
from extender.plugins.scheduling_gates.shares import Bounds
from tests.extender.plugins.scheduling_gates.scenes import NOWHERE, Scene, crowd, gated, of, site, waiting
from tests.kit.clusters import Object, pod

MANY = MOST_MEMBERS + 100
BOUNDS = Bounds(lifted=16, hopeless=4, judged=1)
LOOKS = 22
"""Until all of these pods were judged, and some once more."""

CROWDS: dict[str, list[Object]] = {
    "hopeless ones": crowd("p", MANY, NOWHERE),
    "held ones": [gated(pod(f"p{number}", "missing")) for number in range(MANY)],
}


async def add(scene: Scene, *objects: Object) -> None:
    for each in reversed(objects):
        await scene.cluster.api.create(PODS if each["kind"] == "Pod" else CLAIMS, each)


@pytest.mark.parametrize("crowd", CROWDS)
async def test_no_more_pods_are_judged_than_the_bound_and_one_that_fits_is_lifted_behind_them(crowd: str) -> None:
    scene = Scene(*site(), *CROWDS[crowd], bounds=BOUNDS)
    most = 0
    for _ in range(LOOKS):
        await scene.turns(1, 0.01)
        most = max(most, scene.first.queue.judged)
    assert most == MOST_MEMBERS, "and no more"
    await add(scene, *waiting("good", created="2026-02-01T00:00:00Z"))
    lifted, looks = list[str](), 0
    while "good" not in lifted:
        assert (looks := looks + 1) < LOOKS
        lifted += await scene.turns(1, 0.01)
        assert scene.first.queue.judged <= MOST_MEMBERS


async def test_the_largest_gang_has_its_turn_behind_a_crowd() -> None:
    gang = [each for number in range(MOST_MEMBERS) for each in waiting(f"g{number}")]
    for each in gang:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] = {GROUP: "g", GROUP_SIZE: str(MOST_MEMBERS)}
    scene = Scene(*site(devices=MOST_MEMBERS), *CROWDS["held ones"], *gang, bounds=BOUNDS)
    lifted, looks = list[str](), 0
    while not lifted or scene.first.task.unfinished:
        assert (looks := looks + 1) < 3 * LOOKS
        lifted += await scene.turns(1, 0.01)
    assert len(lifted) >= 8, "as many as are written at a time; the others follow"


async def test_another_namespace_has_its_room() -> None:
    scene = Scene(*site(), *CROWDS["held ones"], *of("other", *crowd("q", 4)), bounds=BOUNDS)
    await scene.turns(2, 0.01)
    assert len(scene.lifted("other")) == 4


def test_pods_of_one_kind_share_what_it_is() -> None:
    gated_pods, kinds = GatedPods(), [("kind", number // 2) for number in range(4)]
    kept = [gated_pods.add(Pod("ns", f"p{place}", f"uid-{place}"), kind) for place, kind in enumerate(kinds)]
    assert [each is other for each, other in pairwise(kept)] == [True, False, True]
