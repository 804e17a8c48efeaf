"""Bind searches off the event loop; what it finds counts if nothing that it rests on has changed meanwhile."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from extender.decisions.solver import Solver
from extender.kube.api import RawObject
from extender.kube.raw import Event, EventType
from extender.kube.resources import RESOURCES
from extender.verbs.bind.plan import MOST_TRIES
from tests.extender.binding_scene import ALLOCATE, Scene
from tests.kit.clusters import (
    Object,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    request,
    solver,
    taint_rule,
)
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

    def __init__(self, *objects: RawObject, meanwhile: Callable[["Searching"], None], by: Solver | None = None) -> None:
        super().__init__(*objects)
        self.searches = 0
        self.latest = 1_000_000
        self._meanwhile = meanwhile
        self.binder = self.binder_by(by=by, off_loop=self._search)

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
        told.append((scene.binder.is_binding("uid-p"), scene.binder.has_decided("uid-p")))

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


def test_a_node_that_changes_all_the_time_is_given_up_and_nothing_is_written() -> None:
    numbers: Iterator[int] = count()

    def change(scene: Searching) -> None:
        scene.load(node("n", labels={"number": str(next(numbers))}))

    scene = Searching(HARD, pod("p", "a"), meanwhile=change)
    assert scene.run(scene.bind()) == ["node n: its devices change all the time"]
    assert (scene.searches, scene.held, scene.devices("a")) == (MOST_TRIES, set(), [])


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
    late = replace(solver(), until=-1.0)
    scene = Searching(HARD, pod("p", "a"), meanwhile=nothing, by=late)
    assert scene.run(scene.bind()) == ["out of time: devices of node n were still looked for"]
    assert scene.held == set()
