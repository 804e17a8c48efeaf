"""Bind searches off the event loop; what it finds counts if nothing that it rests on has changed meanwhile."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from extender.framework.bind.plan import LAST_SECONDS, MOST_TRIES, QUICK_SECONDS
from extender.framework.cycle import Cycle, open_cycle
from extender.framework.decisions.solver import Solver
from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import RESOURCES
from tests.extender.framework.bind.scenes import ALLOCATE, Scene
from tests.kit.clusters import (
    Object,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    solver,
    taint_rule,
)
from tests.kit.objects.parts import DRIVER, api_object, selectors, slice_spec
from tests.kit.servers.memory import Fault

_T = TypeVar("_T")

COSTLY = request(selectors=["[1, 2].exists(n, n == 2)"])
"""To evaluate its selector costs so much that it is counted."""

HARD = claim("a", COSTLY)


class Searching(Scene):
    """A scene in which something may happen between a search and its end.

    Attributes:
        searches: how many there were.
        latest: revision that the watch has told of.
    """

    def __init__(
        self,
        *objects: RawObject,
        meanwhile: Callable[["Searching"], None],
        by: Solver | None = None,
        worked: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(*objects)
        self.searches = 0
        self.latest = 1_000_000
        self._meanwhile = meanwhile
        ordinary = count(0.0, LAST_SECONDS / 2).__next__
        self.binder = self.binder_by(by=by, off_loop=self._search, worked=worked or ordinary)

    async def _search(self, work: Callable[[], _T]) -> _T:
        self.searches += 1
        found = work()
        await asyncio.sleep(0)
        self._meanwhile(self)
        return found

    def load(self, *objects: Object) -> None:
        """Make objects, or put others in their place."""
        for each in objects:
            self.tell(EventType.MODIFIED, each)

    def tell(self, kind: EventType, obj: Object) -> None:
        """Have the watch tell of an object, later than all that was told before."""
        self.latest += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.latest)}
        self.state.apply(Event(kind, RESOURCES[obj["kind"]], {**obj, "metadata": metadata}))


def nothing(_: Searching) -> None:
    pass


def once(*objects: Object) -> Callable[[Searching], None]:
    """These objects come during the first search."""
    left = list(objects)

    def load(scene: Searching) -> None:
        while left:
            scene.load(left.pop(0))

    return load


def test_a_bind_without_anything_to_search_stays_on_the_loop() -> None:
    scene = Searching(claim("a", allocated=["n/gpu-0"], at="n"), pod("p", "a"), meanwhile=nothing)
    assert (scene.run(scene.bind()), scene.searches) == ([""], 0)


QUICK: dict[str, Object] = {
    "no selector": claim("a"),
    "two requests": claim("a", request("one"), request("two")),
}


@pytest.mark.parametrize("asked", QUICK.values(), ids=QUICK)
def test_a_bind_that_is_soon_decided_stays_on_the_loop(asked: Object) -> None:
    scene = Searching(asked, pod("p", "a"), meanwhile=nothing)
    assert (scene.run(scene.bind()), scene.searches) == ([""], 0)


def test_a_selector_is_compiled_off_the_loop_and_then_known() -> None:
    asked = [claim(name, request(selectors=["1 == 1"])) for name in "ab"]
    scene = Searching(*asked, pod("p", "a"), pod("q", "b"), meanwhile=nothing)
    assert (scene.run(scene.bind("p")), scene.searches) == ([""], 1)
    assert (scene.run(scene.bind("q")), scene.searches) == ([""], 1)


def test_a_bind_with_many_devices_to_look_at_leaves_the_loop() -> None:
    scene = Searching(claim("a"), pod("p", "a"), network_slice("net", 300), meanwhile=nothing)
    assert (scene.run(scene.bind()), scene.searches) == ([""], 1)


def test_a_bind_that_searches_leaves_the_loop_once() -> None:
    scene = Searching(HARD, pod("p", "a"), meanwhile=nothing)
    assert (scene.run(scene.bind()), scene.searches) == ([""], 1)
    assert scene.devices("a") == ["n/gpu-0"]


def test_a_bind_has_decided_only_once_its_search_has_ended() -> None:
    told: list[tuple[bool, bool]] = []

    def look(scene: Searching) -> None:
        told.append((scene.binder.is_binding("uid-p"), "uid-p" in scene.binder.decided))

    scene = Searching(HARD, pod("p", "a"), meanwhile=look)

    async def before() -> None:
        look(scene)

    scene.transport.script(ALLOCATE, Fault(before=before))
    assert scene.run(scene.bind()) == [""]
    look(scene)
    assert told == [(True, False), (True, True), (False, False)]


TAKEN = claim("other", allocated=["n/gpu-0"], at="n", users=["other"])

RELEVANT: dict[str, Sequence[Object]] = {
    "a device of the node is taken": [TAKEN],
    "the node is another": [node("n", labels={"zone": "b"})],
    "the node has more devices": [network_slice("net")],
    "a class is another": [device_class(selectors=["true"])],
    "a taint rule comes": [taint_rule("r", pool="elsewhere")],
}


@pytest.mark.parametrize("objects", RELEVANT.values(), ids=RELEVANT)
def test_what_the_answer_rests_on_has_changed_so_bind_decides_again(objects: Sequence[Object]) -> None:
    scene = Searching(HARD, pod("p", "a"), meanwhile=once(*objects))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 2)
    assert scene.devices("a") == (["n/gpu-1"] if TAKEN in objects else ["n/gpu-0"])


IRRELEVANT: dict[str, Sequence[Object]] = {
    "a device of another node is taken": [claim("other", allocated=["m/gpu-0"], at="m", users=["other"])],
    "another node comes": [node("new"), local_slice("new")],
    "another pod with its claim comes": [claim("theirs"), pod("q", "theirs")],
}


@pytest.mark.parametrize("objects", IRRELEVANT.values(), ids=IRRELEVANT)
def test_other_changes_are_no_reason_to_decide_again(objects: Sequence[Object]) -> None:
    scene = Searching(HARD, pod("p", "a"), meanwhile=once(*objects))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 1)


def test_where_pods_are_nominated_any_change_may_matter() -> None:
    nominated = [claim("theirs"), pod("q", "theirs", nominated="n", priority=5)]
    scene = Searching(HARD, pod("p", "a"), *nominated, meanwhile=once(node("new")))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 2)
    assert scene.devices("a") == ["n/gpu-1"]


class Restless:
    """Node n changes during each search.

    Args:
        takes: seconds of a search.
        works: the part of them that the search has a processor.
    """

    def __init__(self, takes: float, works: float = 1.0) -> None:
        self.takes = takes
        self.works = works
        self.seconds = 0.0
        self._worked = 0.0

    def __call__(self, scene: Searching) -> None:
        self.seconds += self.takes
        scene.load(node("n", labels={"second": str(self.seconds)}))

    def solver(self) -> Solver:
        return replace(solver(), clock=lambda: self.seconds)

    def worked(self) -> float:
        """It is asked before and after each search."""
        self._worked += self.takes * self.works
        return self._worked


@pytest.mark.parametrize(
    "restless",
    [Restless(LAST_SECONDS), Restless(20 * LAST_SECONDS, works=0.04)],
    ids=["it is quick", "it has to wait for its turn"],
)
def test_on_a_node_that_changes_all_the_time_a_quick_search_is_made_where_nothing_changes_meanwhile(
    restless: Restless,
) -> None:
    scene = Searching(HARD, pod("p", "a"), meanwhile=restless, by=restless.solver(), worked=restless.worked)
    assert (scene.run(scene.bind()), scene.searches) == ([""], MOST_TRIES)
    assert scene.devices("a") == ["n/gpu-0"]
    assert not late(scene)


def test_a_very_quick_search_is_made_in_a_thread_once_alone() -> None:
    restless = Restless(QUICK_SECONDS)
    scene = Searching(HARD, pod("p", "a"), meanwhile=restless, by=restless.solver(), worked=restless.worked)
    assert (scene.run(scene.bind()), scene.searches) == ([""], 1)
    assert scene.devices("a") == ["n/gpu-0"]


def test_a_node_that_changes_all_the_time_is_given_up_if_its_search_takes_long_and_nothing_is_written() -> None:
    restless = Restless(2 * LAST_SECONDS)
    scene = Searching(HARD, pod("p", "a"), meanwhile=restless, by=restless.solver(), worked=restless.worked)
    assert scene.run(scene.bind()) == ["node n: its devices change all the time"]
    assert (scene.searches, scene.held, scene.devices("a")) == (MOST_TRIES, set(), [])
    assert late(scene) == {"n"}


def test_a_node_whose_last_device_is_taken_meanwhile_is_said_to_have_none() -> None:
    def take(scene: Searching) -> None:
        scene.load(claim(f"other-{scene.searches}", allocated=[f"n/gpu-{scene.searches - 1}"], at="n", users=["x"]))

    scene = Searching(HARD, pod("p", "a"), meanwhile=take)
    assert scene.run(scene.bind()) == ["node n: no free device for request gpu"]


def part(number: int, names: Sequence[str], *, health: int = 0) -> Object:
    """One of two slices of the pool of node n."""
    published = [{"name": name, "attributes": {"health": {"int": health}}} for name in names]
    spec = slice_spec("n", published, slices=2, nodeName="n")
    return api_object("ResourceSlice", f"slice-n-{number}", metadata={"uid": f"uid-{number}"}, spec=spec)


OF_DRIVER = f'device.attributes["{DRIVER}"]'
FIRST, SECOND = [[f"gpu-{place}" for place in range(start, start + 150)] for start in (0, 150)]


class LargePool(Searching):
    """Node n has one pool of 300 devices, and no other node has any."""

    def __init__(self, *objects: RawObject, meanwhile: Callable[[Searching], None]) -> None:
        super().__init__(*objects, meanwhile=meanwhile)
        for name in "nm":
            self.tell(EventType.DELETED, local_slice(name, 2))
        self.load(part(1, FIRST), part(2, SECOND))


def changing(*devices: str) -> Callable[[Searching], None]:
    """The second slice changes during each search; the devices of the first slice are these."""
    numbers: Iterator[int] = count(1)

    def change(scene: Searching) -> None:
        scene.load(part(1, devices), part(2, SECOND[: len(devices)], health=next(numbers)))

    return change


@pytest.mark.parametrize("asked", [request(count=1), request(count=3)], ids=["one device", "three devices"])
def test_a_large_pool_that_changes_all_the_time_is_bound_from_if_the_devices_still_suit(asked: Object) -> None:
    scene = LargePool(claim("a", asked), pod("p", "a"), meanwhile=changing(*FIRST))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 1)
    assert scene.devices("a") == [f"n/gpu-{place}" for place in range(asked["exactly"]["count"])]


def test_a_device_that_has_gone_from_a_large_pool_meanwhile_is_not_given() -> None:
    scene = LargePool(claim("a"), pod("p", "a"), meanwhile=changing(*FIRST[1:]))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 2)
    assert scene.devices("a") == ["n/gpu-1"]


def test_a_device_that_is_taken_from_a_large_pool_meanwhile_is_not_given() -> None:
    scene = LargePool(claim("a"), pod("p", "a"), meanwhile=once(TAKEN))
    assert (scene.run(scene.bind()), scene.searches) == ([""], 2)
    assert scene.devices("a") == ["n/gpu-1"]


def test_a_pool_that_becomes_incomplete_meanwhile_gives_nothing() -> None:
    def withdraw(scene: Searching) -> None:
        scene.tell(EventType.DELETED, part(2, SECOND))

    scene = LargePool(claim("a"), pod("p", "a"), meanwhile=withdraw)
    (error,) = scene.run(scene.bind())
    assert error.startswith("node n: ")
    assert (scene.held, scene.devices("a")) == (set(), [])


def test_a_request_for_all_devices_of_a_pool_that_changes_all_the_time_is_searched_again() -> None:
    way = {"deviceClassName": "gpu", "allocationMode": "All", "selectors": selectors(f"'health' in {OF_DRIVER}")}
    asked = claim("a", {"name": "gpu", "exactly": way})
    scene = LargePool(asked, pod("p", "a"), meanwhile=changing(*FIRST[:5]))
    scene.load(part(1, FIRST[:5]), part(2, SECOND[:5]), network_slice("net", 100), network_slice("more", 200))
    assert (scene.run(scene.bind()), scene.searches) == ([""], MOST_TRIES)
    assert len(scene.devices("a")) == 10


def late(scene: Scene) -> Collection[str]:
    """The nodes that filter passes over for the pod, while another suits."""
    snapshot = scene.state.snapshot
    cycle = open_cycle(parsed(pod("p", "a")), snapshot, solver())
    assert isinstance(cycle, Cycle)
    return set(scene.binder.late.among(cycle, sorted(snapshot.nodes)))


def test_a_claim_that_goes_during_the_search_is_not_written_to() -> None:
    def delete(scene: Searching) -> None:
        scene.tell(EventType.DELETED, claim("a"))

    scene = Searching(HARD, pod("p", "a"), meanwhile=delete)
    assert (scene.run(scene.bind()), scene.searches) == (["claim a does not exist"], 1)
    assert scene.devices("a") == []


def test_binds_that_search_at_the_same_time_get_different_devices() -> None:
    scene = Searching(HARD, pod("p", "a"), claim("b", COSTLY), pod("q", "b"), meanwhile=nothing)
    assert scene.run(scene.bind("p"), scene.bind("q")) == ["", ""]
    assert sorted([*scene.devices("a"), *scene.devices("b")]) == ["n/gpu-0", "n/gpu-1"]
    assert scene.searches == 3


def test_a_search_that_has_no_time_left_says_so() -> None:
    scene = Searching(HARD, pod("p", "a"), meanwhile=nothing, by=replace(solver(), until=-1.0))
    assert scene.run(scene.bind()) == ["out of time: devices of node n were still looked for"]
    assert (scene.held, late(scene)) == (set(), {"n"})
