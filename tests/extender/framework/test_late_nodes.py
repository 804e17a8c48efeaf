"""A node whose devices change faster than they can be searched: filter passes over it while another node suits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import Cycle, open_cycle
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.passed_over_nodes import (
    FIRST_PAUSE,
    LATE,
    MOST_NAMESPACES,
    MOST_OF_NAMESPACE,
    MOST_PAUSE,
    QUIET_SECONDS,
    LateNodes,
)
from tests.kit.clusters import Object, claim, device_class, local_slice, node, parsed, pod, request, snapshot_of, solver
from tests.kit.virtualtime import StillClock

TWO = request(count=2)


def claim_and_pod(name: str, *requests: Object, namespace: str = "ns") -> tuple[Object, Object]:
    """A claim and its pod."""
    claimed, made = claim(name, *requests), pod(name, name)
    for each in (claimed, made):
        each["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{each['kind']}-{name}"}
    return claimed, made


class Scene:
    """Nodes big and small with devices, and pods that ask for one or two of them."""

    def __init__(self, *names: str) -> None:
        self.clock = StillClock()
        self.late = LateNodes(self.clock)
        self._health = count()
        self.names = names or ("big", "small")
        self._asking = [
            *(claim_and_pod("p"), claim_and_pod("q"), claim_and_pod("pair", TWO)),
            *(claim_and_pod("p", namespace=namespace) for namespace in ("other",)),
        ]
        self.change()

    def change(self) -> None:
        """The pool of node big is published anew."""
        health = {"attributes": {"health": {"int": next(self._health)}}}
        pools = [node(name) for name in self.names]
        pools += [local_slice(name, 4, **(health if name == "big" else {})) for name in self.names]
        self.snapshot: Snapshot = snapshot_of(device_class(), *pools, *(each for pair in self._asking for each in pair))

    def cycle(self, name: str = "p", namespace: str = "ns") -> Cycle:
        (asked,) = [each for _, each in self._asking if _place(each) == (namespace, name)]
        found = open_cycle(parsed(asked), self.snapshot, solver())
        assert isinstance(found, Cycle)
        return found

    def fail(self, name: str = "p", namespace: str = "ns", *, on: str = "big") -> None:
        """A bind of the pod is late on the node."""
        cycle = self.cycle(name, namespace)
        self.late.note(cycle, cycle.snapshot.nodes[on])

    def filter(self, name: str = "p", namespace: str = "ns", names: Sequence[str] = ()) -> FilterResult:
        cycle = self.cycle(name, namespace)
        return filter_nodes(cycle.pod, names or self.names, self.snapshot, solver(), bounds=Bounds(late=self.late))

    def passes(self, name: str = "p", namespace: str = "ns") -> bool:
        """Whether filter lets the pod go to node big."""
        return "big" in self.filter(name, namespace).passed


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def test_a_node_that_was_late_is_passed_over_with_a_reason_while_another_suits() -> None:
    scene = Scene()
    assert scene.filter().passed == ("big", "small")
    scene.fail()
    found = scene.filter()
    assert (found.passed, found.unresolvable.in_words()) == (("small",), {"big": LATE.in_words()})


@pytest.mark.parametrize(
    ("name", "namespace", "passes"),
    [("p", "ns", False), ("q", "ns", False), ("pair", "ns", True), ("p", "other", True)],
    ids=["the pod", "an equal pod", "a pod that asks for something else", "an equal pod of another namespace"],
)
def test_it_is_passed_over_for_equal_pods_of_the_namespace(name: str, namespace: str, *, passes: bool) -> None:
    scene = Scene()
    scene.fail()
    assert scene.passes(name, namespace) is passes


@pytest.mark.parametrize("names", [("big",), ("big", "small")], ids=["asked alone", "no other node suits"])
def test_a_node_that_was_late_passes_if_no_other_does(names: tuple[str, ...]) -> None:
    scene = Scene()
    scene.fail()
    if "small" in names:
        scene.snapshot = scene.snapshot.without_slice("slice-small")
    assert scene.filter(names=names).passed == ("big",)


def wait(scene: Scene, seconds: float) -> None:
    """Time passes, and filter looks at the node twice a second."""
    for _ in range(int(2 * seconds)):
        scene.clock.now += 0.5
        scene.passes()


def keep_changing(scene: Scene, seconds: float) -> None:
    """The same, while the pool changes."""
    for _ in range(int(2 * seconds)):
        scene.clock.now += 0.5
        scene.change()
        scene.passes()


@pytest.mark.parametrize(
    ("wait", "seconds", "passes"),
    [
        (wait, QUIET_SECONDS - 1, False),
        (wait, QUIET_SECONDS, True),
        (keep_changing, QUIET_SECONDS, False),
        (keep_changing, FIRST_PAUSE - 1, False),
        (keep_changing, FIRST_PAUSE, True),
    ],
)
def test_it_passes_again_once_its_pools_are_quiet_or_after_a_pause(
    wait: Callable[[Scene, float], None], seconds: float, *, passes: bool
) -> None:
    scene = Scene()
    scene.fail()
    wait(scene, seconds)
    assert scene.passes() is passes


def test_the_pause_doubles_up_to_its_limit() -> None:
    scene, pauses = Scene(), []
    for _ in range(7):
        scene.fail()
        since = scene.clock.now
        while not scene.passes():
            scene.clock.now += 2.0
            scene.change()
        pauses.append(scene.clock.now - since)
    assert pauses == [min(FIRST_PAUSE * 2**power, MOST_PAUSE) for power in range(7)]


def test_a_namespace_has_its_own_room() -> None:
    names = [f"n{place}" for place in range(MOST_OF_NAMESPACE + 10)]
    scene = Scene("big", *names)
    scene.fail(namespace="other")
    for name in names:
        scene.fail(on=name)
    assert len(scene.late.among(scene.cycle(), scene.names)) == MOST_OF_NAMESPACE
    assert not scene.passes(namespace="other")


def test_of_very_many_namespaces_those_are_remembered_that_were_asked_about_last() -> None:
    scene = Scene()
    scene.fail()
    cycle = scene.cycle(namespace="other")
    for number in range(MOST_NAMESPACES):
        crowd = replace(cycle, pod=replace(cycle.pod, namespace=f"crowd-{number}"))
        scene.late.note(crowd, crowd.snapshot.nodes["big"])
    assert scene.passes()
