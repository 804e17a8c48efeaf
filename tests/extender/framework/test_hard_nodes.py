"""A node that is hard to search delays the pods of others for a bounded time, and is passed over while it changes."""

from dataclasses import replace
from itertools import count
from statistics import median

from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.decisions.evaluate import HARD_SECONDS
from extender.framework.filter import FilterResult
from extender.framework.passed_over_nodes import LATE, QUIET_SECONDS
from extender.framework.service import SEARCH_SHARE
from extender.framework.wire import FilterArgs
from extender.kube.api import Event, EventType
from extender.kube.resources import SLICES
from extender.tools.fairness import SAVED_SECONDS
from extender.tools.offload import at_once
from tests.kit.clusters import (
    DRIVER,
    Cluster,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    parsed,
    pod,
    request,
    solver,
)

DEVICES = 1200
SAVED = SEARCH_SHARE * SAVED_SECONDS
SERIAL = f"device.attributes['{DRIVER}'].serial"
ANY = f"{SERIAL} >= 0"
HOPELESS = f"{SERIAL} < 0"


class Ticking:
    """A clock that goes on by 0.3 ms at each look: a search looks at it before each device."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.0003
        return self.now


class Scene:
    """Node hard has 1,200 devices, and node small two. Every pod has a claim of its own.

    Selectors read the serial numbers of devices, so each device is judged by itself.
    """

    def __init__(self) -> None:
        self.clock = Ticking()
        small = local_slice("small", 2, attributes={"serial": {"int": 0}})
        self.cluster = Cluster.of(device_class(), node("hard"), node("small"), self._slice(0), small)
        ticking = replace(solver(), clock=self.clock)
        self.service = make_extender(
            self.cluster.api, self.cluster.state, ticking, Settings(), off_loop=at_once
        ).service
        self._numbers = count()

    def _slice(self, version: int) -> Object:
        made = local_slice("hard", DEVICES)
        for serial, each in enumerate(made["spec"]["devices"]):
            each["attributes"] = {"version": {"int": version}, "serial": {"int": serial}}
        made["metadata"]["resourceVersion"] = str(1000 + version)
        return made

    def change(self, version: int) -> None:
        """The pool of node hard is published anew."""
        self.cluster.state.apply(Event(EventType.MODIFIED, SLICES, self._slice(version)))

    async def filter(self, selector: str = ANY, namespace: str = "ns") -> FilterResult:
        """What filter answers about a new pod."""
        name = f"p{next(self._numbers)}"
        claimed, made = claim(name, request(selectors=[selector])), pod(name, name)
        for each in (claimed, made):
            each["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{each['kind']}-{name}"}
            self.cluster.load(each)
        return await self.service.filter(FilterArgs(parsed(made), ("hard", "small")))

    async def seconds(self, selector: str, namespace: str = "ns") -> float:
        """How long filter takes."""
        began = self.clock.now
        await self.filter(selector, namespace)
        return self.clock.now - began


def selectors(number: int) -> list[str]:
    """Selectors that match nothing, all of them different: no search helps another one."""
    return [f"{HOPELESS} && device.driver != '{each}'" for each in range(number)]


async def test_hopeless_pods_of_a_namespace_wait_for_hard_nodes_for_a_tenth_of_the_time() -> None:
    scene = Scene()
    asked = selectors(100)
    quick = 3 * HARD_SECONDS
    took = [await scene.seconds(selector) for selector in asked]
    assert took[0] > 10 * quick
    assert sum(each for each in took if each > quick) < SAVED + SEARCH_SHARE * sum(took) + 1.0
    assert sum(each < quick for each in took) > 90
    assert median(took) < HARD_SECONDS


async def test_a_search_that_has_too_little_time_is_stopped_and_no_no() -> None:
    scene = Scene()
    *_, found = [await scene.filter(selector) for selector in selectors(10)]
    assert found.unresolvable.in_words()["hard"] == "search stopped by the limit on time"
    assert found.unresolvable.in_words()["small"] == "no device matches request gpu"
    assert found.is_undecided


async def test_another_namespace_has_its_part() -> None:
    scene, seconds = Scene(), {"busy": 0.0, "quiet": 0.0}
    for number, selector in enumerate(selectors(60)):
        namespace = "quiet" if number % 10 == 0 else "busy"
        scene.clock.now += 1.0
        seconds[namespace] += await scene.seconds(selector, namespace)
    assert seconds["quiet"] > seconds["busy"] / 2


async def test_a_hard_node_is_passed_over_from_its_next_change_on_while_another_node_suits() -> None:
    scene = Scene()
    assert (await scene.filter()).passed == ("hard", "small")
    assert (await scene.filter()).passed == ("hard", "small")
    scene.change(1)
    found = await scene.filter()
    assert (found.passed, found.unresolvable.in_words()) == (("small",), {"hard": LATE.in_words()})


async def test_a_hard_node_passes_again_once_its_pools_are_quiet() -> None:
    scene = Scene()
    await scene.filter()
    scene.change(1)
    await scene.filter()
    scene.clock.now += QUIET_SECONDS
    assert (await scene.filter()).passed == ("hard", "small")


async def test_a_pod_that_fits_nowhere_else_gets_devices_of_a_hard_node_that_changes() -> None:
    scene = Scene()
    await scene.filter()
    scene.change(1)
    assert (await scene.filter("'version' in device.attributes[device.driver]")).passed == ("hard",)
