"""Limits of evictions: caps of operators, and the memory of evictions in vain."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from extender.cluster.objects.pods import Pod
from extender.plugins.preemption.eviction_limits import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_KINDS,
    REMEMBERED_SECONDS,
    EvictionCaps,
    EvictionLimits,
    RefusedBy,
)
from tests.kit.clusters import Object, claim, claim_template, parsed, pod, request, snapshot_of

BUSY = "controller c: it is busy"


class Scene:
    """Limits with a clock, and the claims of pods.

    Attributes:
        now: seconds.
        counted: what has kept pods from evicting others.
    """

    def __init__(self, *objects: Object, for_pod: int = 999, of: int = 999, to: int = 999) -> None:
        self.now = 0.0
        self.counted: list[str] = []
        self.snapshot = snapshot_of(*objects)
        caps = EvictionCaps(for_pod, of, to)
        self.limits = EvictionLimits(caps, lambda: self.now, self.counted.append)

    def refused(self, by: Pod, *victims: Pod) -> str:
        """What keeps a pod from evicting; empty: nothing."""
        found = self.limits.refusal(by, (victims, len(victims)), self.snapshot)
        return "" if found is None else found.by

    def evict(self, by: Pod, *victims: Pod, in_vain: bool = False, cause: str = "") -> None:
        evicted = self.limits.note_evicted(by, (victims, len(victims)), self.snapshot)
        if in_vain:
            self.limits.note_in_vain(evicted, cause)
        else:
            self.limits.note_served(evicted)


def templated(name: str, *, namespace: str = "ns", owner: str = "", count: int = 1, **more: Any) -> Pod:
    """A pod with a claim of its own from the template for this number of devices."""
    raw = pod(name, **more)
    raw["metadata"]["namespace"] = namespace
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": f"t{count}"}]
    if owner:
        raw["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "x", "controller": True}
        ]
    return parsed(raw)


TEMPLATES = [claim_template(f"t{count}", request(count=count)) for count in (1, 2)]


def victims(*names: str, namespace: str = "other") -> Sequence[Pod]:
    return [templated(name, namespace=namespace) for name in names]


def test_caps_of_a_pod_count_its_whole_life() -> None:
    scene = Scene(for_pod=2)
    first, other = templated("p"), templated("q")
    scene.evict(first, *victims("a", "b"))
    scene.now = 10_000
    assert scene.refused(first, *victims("c")) == RefusedBy.POD
    assert scene.refused(other, *victims("c", "d")) == ""
    assert scene.refused(other, *victims("c", "d", "e")) == RefusedBy.POD


@pytest.mark.parametrize(
    ("namespaces", "by"),
    [(("ns", "ns"), RefusedBy.PREEMPTORS), (("ns", "more"), RefusedBy.VICTIMS)],
)
def test_caps_of_namespaces_hold_for_a_minute(namespaces: tuple[str, str], by: RefusedBy) -> None:
    scene = Scene(of=3, to=2)
    first, other = (templated(f"p{number}", namespace=each) for number, each in enumerate(namespaces))
    scene.evict(first, *victims("a", "b"))
    scene.now = 30.0
    assert scene.refused(other, *victims("c", "d")) == by
    found = scene.limits.refusal(other, (victims("c", "d"), 2), scene.snapshot)
    assert found is not None
    assert found.seconds == 30.0
    scene.now = 60.0
    assert scene.refused(other, *victims("c", "d")) == ""


def test_pods_without_devices_count_for_the_namespace_of_the_preemptor() -> None:
    scene = Scene(to=2)
    assert scene.limits.refusal(templated("p"), ((), 3), scene.snapshot) is not None
    assert scene.limits.refusal(templated("p"), ((), 2), scene.snapshot) is None


def test_what_is_planned_counts_until_it_is_made_or_dropped() -> None:
    scene = Scene(of=1)
    scene.limits.plan(templated("p"), [(victims("a"), 1), (victims("b", namespace="third"), 1)])
    assert scene.refused(templated("q"), *victims("c")) == RefusedBy.VICTIMS
    assert scene.refused(templated("p"), *victims("a")) == "", "its own plan"
    scene.limits.drop_plan("uid-p")
    assert scene.refused(templated("q"), *victims("c")) == ""
    scene.limits.plan(templated("p"), [(victims("a"), 1)])
    scene.now = 31.0
    assert scene.refused(templated("q"), *victims("c")) == "", "it was never made"


def test_a_cap_of_0_allows_no_eviction() -> None:
    assert Scene(for_pod=0).refused(templated("p"), *victims("a")) == RefusedBy.POD
    assert Scene(of=0).refused(templated("p"), *victims("a")) == RefusedBy.VICTIMS
    assert Scene(to=0).refused(templated("p"), *victims("a")) == RefusedBy.PREEMPTORS


def test_the_pause_after_evictions_in_vain_doubles_up_to_the_longest() -> None:
    scene = Scene(*TEMPLATES)
    pauses = []
    for number in range(9):
        scene.evict(templated(f"p{number}"), *victims(f"v{number}"), in_vain=True)
        pauses.append(scene.limits.pause(templated("next"), scene.snapshot))
        scene.now += pauses[-1]
        assert scene.limits.pause(templated("next"), scene.snapshot) == 0.0
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-2:] == [LONGEST_PAUSE_SECONDS] * 2


LIKE = {
    "made again by its controller": (templated("q", owner="train"), True),
    "of another controller": (templated("q", owner="serve"), False),
    "without a controller": (templated("q"), False),
    "in another namespace": (templated("q", owner="train", namespace="more"), False),
    "asks for more devices": (templated("q", owner="train", count=2), False),
}


@pytest.mark.parametrize(("other", "pauses"), LIKE.values(), ids=LIKE)
def test_pods_of_one_kind_pause_together(other: Pod, pauses: bool) -> None:
    scene = Scene(*TEMPLATES)
    scene.evict(templated("p", owner="train"), *victims("a"), in_vain=True)
    assert bool(scene.limits.pause(other, scene.snapshot)) == pauses


def test_the_same_victims_are_not_evicted_again_on_the_same_cause() -> None:
    scene = Scene(*TEMPLATES)
    scene.evict(templated("p"), *victims("a"), in_vain=True, cause=BUSY)
    scene.now = FIRST_PAUSE_SECONDS
    assert scene.refused(templated("q"), *victims("b")) == RefusedBy.SAME_VICTIMS
    assert scene.refused(templated("q"), *victims("b", "c")) == ""
    assert scene.refused(templated("q"), *victims("b", namespace="third")) == ""
    scene.now = REMEMBERED_SECONDS + 1
    assert scene.refused(templated("q"), *victims("b")) == ""


def test_the_same_victims_are_evicted_again_if_the_cause_is_another_one_or_not_known() -> None:
    scene = Scene(*TEMPLATES)
    scene.evict(templated("p"), *victims("a"), in_vain=True)
    scene.now += FIRST_PAUSE_SECONDS
    assert scene.refused(templated("q"), *victims("b")) == ""
    scene.evict(templated("p"), *victims("a"), in_vain=True, cause=BUSY)
    scene.evict(templated("p"), *victims("a", "b"), in_vain=True, cause="another")
    scene.now += LONGEST_PAUSE_SECONDS
    assert scene.refused(templated("q"), *victims("b")) == ""


def test_a_pod_that_is_bound_with_what_its_victims_held_ends_the_pause_of_its_kind() -> None:
    scene = Scene(*TEMPLATES)
    scene.evict(templated("p"), *victims("a"), in_vain=True, cause=BUSY)
    scene.evict(templated("q"), *victims("b"))
    assert scene.refused(templated("r"), *victims("c")) == ""


def test_a_namespace_with_many_kinds_in_pause_evicts_for_no_further_kind_and_others_do() -> None:
    scene = Scene(*TEMPLATES)
    for number in range(MOST_KINDS):
        scene.evict(templated("p", owner=f"job-{number}"), *victims("a"), in_vain=True)
    assert scene.refused(templated("p", owner="more"), *victims("a")) == RefusedBy.PAUSE
    assert scene.refused(templated("p", owner="more", namespace="third"), *victims("a")) == ""
    scene.now = FIRST_PAUSE_SECONDS
    assert scene.refused(templated("p", owner="more"), *victims("a")) == ""


def test_the_claim_of_a_name_says_what_a_pod_asks_for() -> None:
    scene = Scene(claim("c"), claim("d", request(count=2)))
    scene.evict(parsed(pod("p", "c")), *victims("a"), in_vain=True)
    assert scene.refused(parsed(pod("q", "c")), *victims("a")) == RefusedBy.PAUSE
    assert scene.refused(parsed(pod("q", "d")), *victims("a")) == ""


class Watched(list[Pod]):
    """Victims; something happens when they are looked at first."""

    event: Callable[[], None] = staticmethod(lambda: None)

    def __iter__(self) -> Iterator[Pod]:
        event, self.event = self.event, lambda: None
        event()
        return super().__iter__()


def test_nobody_waits_while_the_kinds_of_many_victims_are_found_out() -> None:
    """The event loop asks for the limits of one pod while a thread looks at the victims of another."""
    scene = Scene(*TEMPLATES)
    by = templated("p")
    scene.evict(by, *victims("a"), in_vain=True, cause=BUSY)
    scene.now = FIRST_PAUSE_SECONDS
    many, done = Watched(victims("a", "b")), []

    def ask() -> None:
        scene.limits.pause(templated("q"), scene.snapshot)
        done.append("asked")

    def ask_meanwhile() -> None:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(timeout=10)
        done.append("looked at")

    many.event = ask_meanwhile
    assert scene.refused(by, *victims("a")) == RefusedBy.SAME_VICTIMS
    assert scene.limits.refusal(by, (many, len(many)), scene.snapshot) is None
    assert done == ["asked", "looked at"]


def test_of_several_choices_those_that_may_be_made_are_planned_and_the_others_told() -> None:
    scene = Scene(*TEMPLATES, for_pod=2, to=3)
    by = templated("p")
    scene.evict(by, *victims("a"), in_vain=True, cause=BUSY)
    by, scene.now = templated("p2"), FIRST_PAUSE_SECONDS
    sets = {"same": victims("a"), "fit": victims("a", "b"), "many": victims("a", "b", "c")}
    options = {node: (known, len(known)) for node, known in sets.items()}
    allowed, refused = scene.limits.admit(by, options, scene.snapshot)
    assert [*allowed] == ["fit"]
    assert [each.by for each in refused] == [RefusedBy.SAME_VICTIMS, RefusedBy.POD]
    assert scene.refused(templated("q", count=2), *victims("d")) == RefusedBy.PREEMPTORS
    scene.limits.drop_plan(by.uid)
    assert scene.refused(templated("q", count=2), *victims("d")) == ""
