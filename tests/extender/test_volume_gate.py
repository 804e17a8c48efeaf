"""Taking turns: a filter call waits for what became of the pods before, where volumes are at stake; never for long."""

import asyncio
from typing import Any

import pytest

from extender.kube.raw import Event, EventType
from extender.kube.resources import PODS
from extender.verbs.volume_gate import MOST_SECONDS, VolumeGate
from tests.kit.clusters import Object, parsed, pod, state_of
from tests.kit.virtualtime import run

VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SOON = 0.05
NOBODY = frozenset[str]().__contains__


def with_volumes(obj: Object) -> Object:
    return {**obj, "spec": {**obj["spec"], "volumes": [VOLUME]}}


PLAIN, STATEFUL = pod("before", "c"), with_volumes(pod("before", "c"))


def later(obj: Object, **metadata: Any) -> Event:
    changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "2", **metadata}}
    return Event(EventType.MODIFIED, PODS, changed)


def waited(before: Object, now: Object, event: Event | None = None) -> float:
    """Seconds that the filter call of a pod waits after the one of another.

    Args:
        event: what happens to the other soon; None: it is being bound then.
    """

    async def scene() -> float:
        state, binding = state_of([before]), set[str]()
        turns = VolumeGate(state, binding.__contains__)
        turns.give(parsed(before))
        loop = asyncio.get_running_loop()
        if event is None:
            loop.call_later(SOON, binding.add, "uid-before")
        else:
            loop.call_later(SOON, state.apply, event)
        await turns.wait(parsed(now))
        return loop.time()

    return run(scene())


def test_where_no_volumes_are_at_stake_nobody_waits() -> None:
    assert waited(PLAIN, pod("now", "d")) == 0


@pytest.mark.parametrize(
    ("before", "now"),
    [(STATEFUL, pod("now", "d")), (PLAIN, with_volumes(pod("now", "d")))],
    ids=["the one before has volumes", "this one has volumes"],
)
@pytest.mark.parametrize(
    "event",
    [
        later(pod("before", "c", nominated="a")),
        later(pod("before", "c", on="a")),
        later(pod("before", "c")),
        None,
    ],
    ids=["nominated", "bound", "changed, as by a failure", "being bound"],
)
def test_it_waits_until_something_is_heard(before: Object, now: Object, event: Event | None) -> None:
    assert waited(before, now, event) == pytest.approx(SOON, abs=0.01)


def test_it_does_not_wait_for_ever_and_for_the_same_pod_only_once() -> None:
    async def scene() -> list[float]:
        turns = VolumeGate(state_of([STATEFUL]), NOBODY)
        turns.give(parsed(STATEFUL))
        times = []
        for name in ("now", "next"):
            await turns.wait(parsed(pod(name)))
            times.append(asyncio.get_running_loop().time())
        return times

    assert run(scene()) == pytest.approx([MOST_SECONDS, MOST_SECONDS])


def test_nobody_waits_for_himself() -> None:
    assert waited(STATEFUL, STATEFUL) == 0


def test_what_was_heard_before_filter_was_asked_does_not_count() -> None:
    newer = {**STATEFUL, "metadata": {**STATEFUL["metadata"], "resourceVersion": "2"}}

    async def scene() -> float:
        state = state_of([STATEFUL])
        turns = VolumeGate(state, NOBODY)
        turns.give(parsed(newer))
        state.apply(later(STATEFUL))
        await turns.wait(parsed(pod("now")))
        return asyncio.get_running_loop().time()

    assert run(scene()) == pytest.approx(MOST_SECONDS)


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (VOLUME, True),
        ({"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}, True),
        ({"name": "data", "emptyDir": {}}, False),
    ],
    ids=["claimed", "ephemeral", "of the node"],
)
def test_which_volumes_count(volume: Object, expected: bool) -> None:
    raw = pod("p")
    raw["spec"]["volumes"] = [volume]
    assert parsed(raw).has_volumes == expected
