"""Where two capabilities meet: pods that need devices in different ways compete for the devices of one node."""

from collections.abc import Coroutine, Iterable
from itertools import combinations
from typing import Any, Final

import pytest

from extender.framework.victims import Victims
from tests.extender.pair_scenes import FORMS, PLAIN, Form, Scene
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, pod
from tests.kit.objects.quotas import quota
from tests.kit.virtualtime import in_virtual_time

APART: Final = [
    ("extended resources", "node resources"),
    ("shared claims", "node resources"),
]
"""Forms that cannot meet on one device: the first is refused where the second is."""


def run(main: Coroutine[Any, Any, None]) -> None:
    virtualtime.run(main)


def each_form(*without: str) -> pytest.MarkDecorator:
    names: Iterable[str] = [name for name in FORMS if name not in without]
    return pytest.mark.parametrize("name", names)


async def check_turns(scene: Scene, first: Form, second: Form) -> None:
    """Pods take turns: each waits until the one before it has ended."""
    scene.add("a", first)
    await scene.until("a")
    scene.add("b", second)
    await scene.run()
    assert scene.served() == scene.of("a")
    await scene.end("a")
    await scene.until("b")
    scene.add("again", first)
    await scene.run()
    assert scene.served() == scene.of("b")
    await scene.end("b")
    await scene.until("again")


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in combinations(FORMS, 2) if pair not in APART], ids=lambda name: name
)
@in_virtual_time
async def test_of_two_that_compete_the_second_runs_when_the_first_has_ended(first: str, second: str) -> None:
    scene = Scene(first, second)
    await check_turns(scene, FORMS[first], FORMS[second])


@each_form()
@in_virtual_time
async def test_a_quota_holds_although_devices_are_free(name: str) -> None:
    form = FORMS[name]
    everything = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    limit = {"name": "all", "selectors": [everything], "devices": form.wants}
    scene = Scene(name, spare=form.wants, more=[quota(limit)])
    await check_turns(scene, form, PLAIN)


@in_virtual_time
async def test_a_quota_holds_for_the_next_process() -> None:
    limit = {"name": "all", "deviceClassName": "gpu", "devices": 1}
    scene = Scene("volumes", spare=1, more=[quota(limit)])
    scene.add("a", PLAIN)
    await scene.until("a")
    scene.queue.restart()
    scene.add("b", PLAIN)
    await scene.run()
    scene.queue.restart()
    await scene.run()
    assert scene.served() == scene.of("a")
    await scene.end("a")
    await scene.until("b")


@each_form()
@in_virtual_time
async def test_a_new_process_goes_on_where_the_last_one_has_died(name: str) -> None:
    form = FORMS[name]
    scene = Scene(name)
    scene.add("a", form)
    await scene.queue.run(0.4)
    scene.queue.restart()
    await scene.until("a")
    scene.add("b", PLAIN)
    await scene.run()
    scene.queue.restart()
    await scene.run()
    assert scene.served() == scene.of("a")
    await scene.end("a")
    scene.queue.restart()
    await scene.until("b")


@each_form()
@in_virtual_time
async def test_two_replicas_that_are_asked_in_turns_give_each_device_once(name: str) -> None:
    form = FORMS[name]
    scene = Scene(name, replicas=2)
    scene.add("a", form)
    scene.add("b", form)
    await scene.run(15)
    others = {"a": "b", "b": "a"}
    winners = [party for party in others if scene.of(party) == scene.served()]
    assert len(winners) == 1
    await scene.end(winners[0])
    await scene.until(others[winners[0]])


@each_form("gangs")
@in_virtual_time
async def test_a_pod_of_high_priority_gets_the_devices_of_others(name: str) -> None:
    scene = Scene(name)
    scene.add("a", FORMS[name])
    await scene.until("a")
    scene.add("vip", PLAIN, 100)
    await scene.until("vip")
    await scene.run()
    assert scene.queue.pods() == {"vip"}


@in_virtual_time
async def test_of_a_gang_one_pod_goes_for_one_device() -> None:
    scene = Scene("gangs")
    scene.add("a", FORMS["gangs"])
    await scene.until("a")
    scene.add("vip", PLAIN, 100)
    await scene.run(15)
    assert len(scene.queue.pods() & scene.of("a")) == 1
    assert scene.served() == scene.queue.pods()


@each_form("gangs", "immediate claims", "pinned pods")
@in_virtual_time
async def test_those_that_matter_less_go_for_it(name: str) -> None:
    scene = Scene(name)
    scene.add("low", PLAIN)
    await scene.until("low")
    scene.add("vip", FORMS[name], 100)
    await scene.until("vip")
    await scene.run()
    assert scene.queue.pods() == scene.of("vip")


async def full_of_others(name: str) -> tuple[Scene, list[str]]:
    """Less important pods have as many devices as a form wants; their names."""
    scene = Scene(name)
    lows = [f"low{number}" for number in range(FORMS[name].wants)]
    for each in lows:
        scene.add(each, PLAIN)
    await scene.until(*lows)
    return scene, lows


@pytest.mark.parametrize("name", ["gangs", "immediate claims", "pinned pods"])
@in_virtual_time
async def test_nobody_goes_for_it(name: str) -> None:
    scene, lows = await full_of_others(name)
    scene.add("vip", FORMS[name], 100)
    await scene.run(15)
    assert scene.served() == set(lows)
    for each in lows:
        await scene.end(each)
    await scene.until("vip")


@each_form("immediate claims", "pinned pods")
@in_virtual_time
async def test_who_holds_its_devices_joins_the_victims_of_the_scheduler(name: str) -> None:
    scene, _ = await full_of_others(name)
    await scene.run()
    scene.queue.add(pod("cpu", on="n"))
    scene.add("vip", FORMS[name], 100)
    found = await scene.victims(min(scene.of("vip")), "uid-cpu")
    if name == "gangs":
        assert found == {}
    else:
        assert found == {"n": Victims(("uid-cpu", "uid-low0"))}


async def with_one_to_evict(replicas: int = 1) -> Scene:
    """Pod "low" runs, and pod "vip" would be served if it were evicted."""
    scene = Scene("volumes", replicas=replicas)
    scene.add("low", PLAIN)
    await scene.until("low")
    scene.queue.add(pod("cpu", on="n"))
    scene.add("vip", PLAIN, 100)
    return scene


@in_virtual_time
async def test_the_next_process_names_the_same_victims() -> None:
    scene = await with_one_to_evict()
    found = await scene.victims("vip", "uid-cpu")
    scene.queue.restart()
    assert await scene.victims("vip", "uid-cpu") == found == {"n": Victims(("uid-cpu", "uid-low"))}


@in_virtual_time
async def test_each_replica_names_the_same_victims() -> None:
    scene = await with_one_to_evict(replicas=2)
    found = [await scene.victims("vip", "uid-cpu", by=each) for each in scene.queue.services]
    assert found == [{"n": Victims(("uid-cpu", "uid-low"))}] * 2


@each_form("gangs")
@in_virtual_time
async def test_its_devices_are_freed_for_the_victims_of_the_scheduler(name: str) -> None:
    scene = Scene(name)
    scene.add("a", FORMS[name])
    await scene.until("a")
    scene.queue.add(pod("cpu", on="n"))
    scene.add("vip", PLAIN, 100)
    found = await scene.victims("vip", "uid-cpu")
    assert {each: set(victims.uids) for each, victims in found.items()} == {
        "n": {"uid-cpu", *(f"uid-{each}" for each in scene.of("a"))}
    }


@each_form("negotiated claims", "immediate claims", "pinned pods")
@in_virtual_time
async def test_what_is_foretold_for_a_new_node_comes_true(name: str) -> None:
    scene = Scene(name)
    scene.add("a", FORMS[name])
    await scene.until("a")
    scene.add("b", FORMS[name])
    await scene.run()
    assert scene.foretold({"nodes": [{"like": "n"}]}) == dict.fromkeys(scene.of("b"), "gets a place")
    scene.grow("new")
    await scene.until("a", "b")


@each_form("negotiated claims", "immediate claims", "pinned pods")
@in_virtual_time
async def test_an_autoscaler_adds_the_node_on_which_it_runs(name: str) -> None:
    scene = Scene(name)
    scene.add("a", FORMS[name])
    await scene.until("a")
    scene.add("b", FORMS[name])
    await scene.run()
    assert scene.estimated("b") == [sorted(scene.of("b"))]
    scene.grow("new")
    await scene.until("a", "b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("negotiated claims", {"b": "waits"}), ("immediate claims", {"b": "waits"}), ("pinned pods", {})],
)
@in_virtual_time
async def test_nothing_is_foretold_that_others_decide(name: str, expected: dict[str, str]) -> None:
    scene = Scene(name)
    scene.add("a", FORMS[name])
    await scene.until("a")
    scene.add("b", FORMS[name])
    await scene.run()
    assert scene.foretold({"nodes": [{"like": "n"}]}) == expected
