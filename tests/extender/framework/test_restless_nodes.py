"""A node with very many devices that have just changed: filter passes over it unsearched while another node suits."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from allocator import parse_claim
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import FilterResult
from extender.framework.passed_over_nodes import MANY_DEVICES, QUIET_SECONDS, RESTLESS, RestlessNodes
from extender.framework.wire import FilterArgs
from extender.kube.api import Event, EventType
from extender.kube.resources import SLICES
from extender.tools.offload import at_once
from tests.kit.clusters import Cluster, Object, claim, device_class, local_slice, node, parsed, pod, request, solver
from tests.kit.virtualtime import StillClock

_T = TypeVar("_T")

NODES = ("large", "small")
LARGE = MANY_DEVICES + 1


class Scene:
    """Node large has many devices, and node small two. Every pod has a claim of its own.

    Attributes:
        in_threads: how many calls were decided in a thread.
    """

    def __init__(self, devices: int = LARGE) -> None:
        self.clock, self.in_threads = StillClock(), 0
        self.devices = devices
        objects = (node("large"), node("small"), local_slice("large", devices), local_slice("small", 2))
        self.cluster = Cluster.of(device_class(), *objects)
        self.extender = make_extender(
            self.cluster.api,
            self.cluster.state,
            replace(solver(), clock=self.clock),
            Settings(),
            off_loop=self.in_thread,
        )
        self._numbers = count()

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        self.in_threads += 1
        return await at_once(work)

    def change(self, name: str = "large") -> None:
        """The pool of a node is published anew."""
        made = local_slice(name, self.devices if name == "large" else 2)
        number = next(self._numbers)
        made["spec"]["devices"][0]["attributes"] = {"version": {"int": number}}
        made["metadata"]["resourceVersion"] = str(1000 + number)
        self.cluster.state.apply(Event(EventType.MODIFIED, SLICES, made))

    async def filter(self, namespace: str = "ns", wanted: Object | None = None) -> FilterResult:
        """What filter answers about a new pod."""
        name = f"p{next(self._numbers)}"
        claimed, made = claim(name, wanted or request()), pod(name, name)
        for each in (claimed, made):
            each["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{each['kind']}-{name}"}
            self.cluster.load(each)
        return await self.extender.service.filter(FilterArgs(parsed(made), NODES))


async def test_it_passes_while_nothing_of_it_changes() -> None:
    scene = Scene()
    assert (await scene.filter()).passed == NODES
    assert (await scene.filter()).passed == NODES


@pytest.mark.parametrize("namespace", ["ns", "that has never asked"])
async def test_it_is_passed_over_after_a_change_whoever_asks(namespace: str) -> None:
    scene = Scene()
    await scene.filter()
    scene.change()
    found = await scene.filter(namespace)
    assert (found.passed, found.unresolvable.in_words()) == (("small",), {"large": RESTLESS.in_words()})


async def test_it_passes_again_once_it_is_quiet() -> None:
    scene = Scene()
    await scene.filter()
    scene.change()
    await scene.filter()
    scene.clock.now += QUIET_SECONDS - 0.1
    assert (await scene.filter()).passed == ("small",)
    scene.clock.now += 0.1
    assert (await scene.filter()).passed == NODES


async def test_each_change_begins_the_time_anew() -> None:
    scene = Scene()
    await scene.filter()
    for _ in range(5):
        scene.clock.now += QUIET_SECONDS - 0.1
        scene.change()
        assert (await scene.filter()).passed == ("small",)


async def test_a_pod_that_fits_nowhere_else_gets_its_devices() -> None:
    scene = Scene()
    await scene.filter()
    scene.change()
    assert (await scene.filter(wanted=request(count=3))).passed == ("large",)


@pytest.mark.parametrize(
    "changed", [lambda scene: scene.change(), lambda scene: scene.change("small")], ids=["few devices", "another node"]
)
async def test_what_is_no_large_node_that_changes_passes(changed: Callable[[Scene], None]) -> None:
    scene = Scene(MANY_DEVICES)
    await scene.filter()
    changed(scene)
    assert (await scene.filter()).passed == NODES


async def test_others_are_answered_from_memory_beside_it() -> None:
    scene = Scene()
    await scene.filter()
    scene.change()
    await scene.filter()
    before = scene.in_threads
    scene.change()
    assert (await scene.filter()).passed == ("small",)
    assert scene.in_threads == before


def test_it_keeps_no_node_after_it_from_being_examined() -> None:
    scene = Scene()
    scene.change("small")
    scene.change()
    snapshot, decider = scene.cluster.state.snapshot, Decider(solver(), scene.cluster.state)
    asked = parse_claim(claim("asked", request()))
    decider.evaluate(decider.lookup([asked], ("small",), snapshot))
    assert decider.lookup([asked], NODES, snapshot).missing == [0]


async def test_a_node_that_has_lost_its_devices_is_remembered_no_more() -> None:
    scene = Scene()
    nodes = RestlessNodes(scene.cluster.state, scene.clock)
    nodes.among(NODES)
    scene.change()
    assert nodes.among(NODES) == {"large"}
    scene.devices = 2
    scene.change()
    assert not nodes.among(NODES)
    assert not nodes.at(scene.cluster.state.snapshot)
