"""The laws of evictions by both ways, over random clusters and histories with a scheduler that knows CPU.

- Nobody is evicted for a pod that could not be bound: for each victim, the pod for which it was evicted is bound in the
  end, or something that keeps it from its devices has happened after the eviction.
- Pods evict no more than the DeviceQuota of their namespace lets them use.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from extender.cluster.objects.pods import GROUP, GROUP_SIZE, Pod
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.victims import Victims
from extender.framework.wire import BindArgs, FilterArgs, PreemptArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import DEVICE_QUOTAS, PODS
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.plugins.preemption.worlds import within
from tests.kit.clusters import DRIVER, Cluster, Object, claim, device_class, local_slice, node, pod, request, solver
from tests.kit.objects.quotas import quota
from tests.kit.virtualtime import in_virtual_time

EXAMPLES: Final = int(os.environ.get("EVICTION_EXAMPLES", "40"))
NODES: Final = ("a", "b", "c")
NAMESPACES: Final = ("ns", "team")
LARGE: Final = f"device.attributes['{DRIVER}'].large"
GPU: Final = device_class(selectors=[f'device.driver == "{DRIVER}"'], extended="example.com/gpu")
MANY: Final = Settings.model_validate({"evictions": {"forPod": 1000, "ofNamespace": 1000, "forNamespace": 1000}})
SETTLING: Final = 6
"""Rounds at the end in which pods are tried and end, and nothing else happens."""


@dataclass(frozen=True)
class Running:
    """A pod with a node.

    Attributes:
        device: that it holds, by its number on the node; None: it needs none.
        is_terminating: from the start.
    """

    namespace: str
    node: str
    device: int | None
    priority: int
    is_terminating: bool = False


@dataclass(frozen=True)
class Waiting:
    """A pod without a node.

    Attributes:
        count: of the devices that it asks for.
        is_large: only large devices serve it.
        is_extended: it asks by an extended resource.
        gang: the size of its gang, which has the name of its namespace; 0: it is in none.
    """

    namespace: str
    priority: int
    count: int
    is_large: bool = False
    is_extended: bool = False
    gang: int = 0


@dataclass(frozen=True)
class World:
    """A cluster.

    Attributes:
        devices: of each node: whether each is large.
        slots: for how many pods each node has CPU.
        quotas: the limits of each namespace that has a quota; whether it may borrow from the others.
    """

    devices: Mapping[str, Sequence[bool]]
    slots: dict[str, int]
    running: Sequence[Running]
    waiting: Sequence[Waiting]
    quotas: dict[str, tuple[Object, bool]]

    def objects(self) -> Iterator[Object]:
        yield GPU
        for name in NODES:
            published = local_slice(name, len(self.devices[name]))
            for device, is_large in zip(published["spec"]["devices"], self.devices[name], strict=True):
                device["attributes"] = {"large": {"bool": is_large}}
                device["capacity"] = {"memory": {"value": "80Gi" if is_large else "10Gi"}}
            yield from (node(name), published)
        for namespace, (limit, borrowing) in self.quotas.items():
            yield quota(limit, name="quota", namespace=namespace, cohort="all", borrowing=borrowing)
        for number, each in enumerate(self.running):
            yield from self._running(f"v{number}", each)
        for number, waits in enumerate(self.waiting):
            yield from self._waiting(f"p{number}", waits)

    def _running(self, name: str, each: Running) -> Iterator[Object]:
        used = [f"{name}-c"] if each.device is not None else []
        raw = pod(name, *used, on=each.node, priority=each.priority, deleting=each.is_terminating)
        raw["metadata"]["finalizers"] = ["example.com/slow"]
        if used:
            held = claim(used[0], allocated=[f"{each.node}/gpu-{each.device}"], at=each.node, users=[name])
            held["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
            yield within(each.namespace, held)
        yield within(each.namespace, raw)

    def _waiting(self, name: str, each: Waiting) -> Iterator[Object]:
        used = [] if each.is_extended else [f"{name}-c"]
        raw = pod(name, *used, priority=each.priority)
        if each.is_extended:
            raw["spec"]["containers"][0]["resources"] = {"requests": {"example.com/gpu": str(each.count)}}
        else:
            selectors = [LARGE] if each.is_large else []
            yield within(each.namespace, claim(used[0], request(count=each.count, selectors=selectors)))
        if each.gang:
            raw["metadata"]["annotations"] = {GROUP: each.namespace, GROUP_SIZE: str(each.gang)}
        yield within(each.namespace, raw)


@dataclass
class Site:
    """A cluster with the service and a scheduler that counts CPU, as kube-scheduler does.

    Attributes:
        now: seconds.
        evicted: each victim, its preemptor, and the number of events before.
        events: what may keep a pod from its devices: whether it concerns a pod.
    """

    world: World
    now: float = 0.0
    evicted: list[tuple[str, str, int]] = field(default_factory=list)
    events: list[Callable[[Pod], bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = Cluster.of(*self.world.objects())
        timed = replace(solver(), clock=lambda: self.now)
        self.service = make_extender(self.cluster.api, self.cluster.state, timed, MANY, off_loop=at_once).service

    def pods(self) -> Sequence[Pod]:
        found = self.cluster.state.snapshot.pods.values()
        return sorted(found, key=lambda each: (-each.priority, each.name))

    def pod(self, name: str) -> Pod | None:
        return next((each for each in self.pods() if each.name == name), None)

    def _taken(self, name: str, asking: Pod) -> list[Pod]:
        """The pods that take CPU of a node, also those nominated there that are as important."""
        return [
            each
            for each in self.pods()
            if each.node_name == name
            or (
                (each.is_pending and each.nominated_node == name and each.uid != asking.uid)
                and each.priority >= asking.priority
            )
        ]

    def _victims(self, name: str, asking: Pod) -> list[Pod]:
        """The pods that kube-scheduler would evict on a node for want of CPU, the least important ones."""
        able = [each for each in self._taken(name, asking) if each.node_name and each.priority < asking.priority]
        lack = len(self._taken(name, asking)) + 1 - self.world.slots[name]
        able = sorted((each for each in able if not each.deleting), key=lambda each: (each.priority, each.name))
        return able[:lack] if len(able) >= lack else []

    async def schedule(self, name: str) -> None:
        """A scheduler tries a pod: filter, and bind or preempt."""
        asking = self.pod(name)
        if asking is None or not asking.is_pending:
            return
        names = [each for each in NODES if len(self._taken(each, asking)) < self.world.slots[each]]
        passed: Sequence[str] = ()
        if names:
            passed = (await self.service.filter(FilterArgs(asking, names))).passed
        if passed:
            await self._bind(asking, passed[0])
        else:
            await self._preempt(asking, [each for each in NODES if each not in names])

    async def _bind(self, asking: Pod, on: str) -> None:
        try:
            await self.service.bind(BindArgs(asking.namespace, asking.name, asking.uid, on))
        except RefusedError:
            return
        self.events.append(lambda other: other.priority < asking.priority or self._gives_back(other, asking))

    def _gives_back(self, other: Pod, asking: Pod) -> bool:
        """Whether a pod may have only what the namespace of another has left of its quota, whatever the priorities."""
        return other.namespace != asking.namespace and self.world.quotas.get(other.namespace, (None, False))[1]

    async def _preempt(self, asking: Pod, names: Sequence[str]) -> None:
        there = [each for each in self.pods() if each.node_name == asking.nominated_node]
        if any(each.deleting and each.priority < asking.priority for each in there):
            return  # it waits for its victims
        options = {name: victims for name in names if (victims := self._victims(name, asking))}
        given = {name: Victims(tuple(each.uid for each in victims)) for name, victims in options.items()}
        if not given:
            return
        found = await self.service.preempt(PreemptArgs(asking, given))
        if not found:
            return
        name = min(found, key=lambda each: (len(found[each].uids), each))
        for uid in found[name].uids:
            victim = self.cluster.state.snapshot.pod(uid)
            assert victim is not None
            self.evicted.append((victim.name, asking.name, len(self.events)))
            await self.cluster.api.delete(PODS, victim.key)
        nominated = {"status": {"nominatedNodeName": name}}
        await self.cluster.api.patch_status(PODS, asking.key, nominated)

    async def turns(self) -> None:
        """The background tasks have turns for some seconds."""
        for _ in range(4):
            self.now += 0.6
            before = {each.name for each in self.pods() if each.deleting}
            await self.service.background.tick()
            for each in self.pods():
                if each.deleting and each.name not in before:
                    preemptor = next(pod for pod in self.pods() if each.uid in pod.kept.victims)
                    self.evicted.append((each.name, preemptor.name, len(self.events)))

    async def terminate(self) -> None:
        """Pods that are terminating come to their end."""
        for each in self.pods():
            if each.deleting:
                await self.cluster.api.patch(PODS, each.key, {"metadata": {"finalizers": None}})
        await self.cluster.settle()

    async def end(self, name: str) -> None:
        """A pod is deleted by its owner."""
        found = self.pod(name)
        if found is not None and not found.deleting:
            await self.cluster.api.patch(PODS, found.key, {"metadata": {"finalizers": None}})
            await self.cluster.api.delete(PODS, found.key)
            await self.cluster.settle()
            gang = found.gang_key
            self.events.append(lambda other: other.uid == found.uid or (gang is not None and other.gang_key == gang))

    async def limit(self, namespace: str, devices: int) -> None:
        """An administrator sets the quota of a namespace to a number of devices."""
        if namespace in self.world.quotas:
            limits = [{"name": "gpu", "deviceClassName": "gpu", "devices": devices}]
            patch = {"spec": {"limits": limits}}
            await self.cluster.api.patch(DEVICE_QUOTAS, ObjectKey(namespace, "quota"), patch)
            self.events.append(lambda _: True)


def _limits() -> st.SearchStrategy[Object]:
    few = st.integers(0, 3)
    plain = few.map(lambda n: {"name": "gpu", "deviceClassName": "gpu", "devices": n})
    large = few.map(lambda n: {"name": "gpu", "selectors": [{"cel": {"expression": LARGE}}], "devices": n})
    memory = st.sampled_from(("0", "10Gi", "90Gi", "200Gi")).map(
        lambda n: {"name": "gpu", "deviceClassName": "gpu", "capacity": {"memory": n}}
    )
    return st.one_of(plain, large, memory)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    devices = {name: draw(st.lists(st.booleans(), min_size=1, max_size=2)) for name in NODES}
    running: list[Running] = []
    for name in NODES:
        for number in (*range(len(devices[name])), None):
            if draw(st.integers(0, 3)):
                who, priority = draw(st.sampled_from(NAMESPACES)), draw(st.integers(-1, 2))
                running.append(Running(who, name, number, priority, draw(st.sampled_from((False,) * 9 + (True,)))))
    on = {name: sum(each.node == name for each in running) for name in NODES}
    slots = {name: on[name] + draw(st.integers(0, 2)) for name in NODES}
    quotas = {name: (draw(_limits()), draw(st.booleans())) for name in NAMESPACES if draw(st.integers(0, 3))}
    waiting = draw(
        st.lists(
            st.builds(
                Waiting,
                st.sampled_from(NAMESPACES),
                st.integers(0, 4),
                st.sampled_from((1, 1, 2)),
                st.booleans(),
                st.sampled_from((False, False, True)),
                st.sampled_from((0, 0, 0, 2)),
            ),
            min_size=1,
            max_size=4,
        )
    )
    return World(devices, slots, running, waiting, quotas)


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[tuple[str, Any]]]:
    """A world, and what happens there: pods are tried, end, terminate, and limits change."""
    world = draw(worlds())
    tried = st.integers(0, len(world.waiting) - 1).map(lambda n: ("try", f"p{n}"))
    own = [f"p{n}" for n in range(len(world.waiting))] + [f"v{n}" for n in range(len(world.running))]
    ended = st.sampled_from(own).map(lambda name: ("end", name))
    limited = st.tuples(st.sampled_from(NAMESPACES), st.integers(0, 3)).map(lambda each: ("limit", each))
    plain = st.sampled_from((("turns", None), ("terminate", None)))
    return world, draw(st.lists(st.one_of(tried, tried, tried, plain, plain, ended, limited), max_size=12))


async def played(site: Site, steps: Sequence[tuple[str, Any]]) -> None:
    """The steps, and then rounds in which all pods are tried and end."""
    for what, about in steps:
        match what:
            case "try":
                await site.schedule(about)
            case "end":
                await site.end(about)
            case "limit":
                await site.limit(*about)
            case "turns":
                await site.turns()
            case "terminate":
                await site.terminate()
    for _ in range(SETTLING):
        for each in site.pods():
            await site.schedule(each.name)
        await site.turns()
        await site.terminate()
        await site.turns()


LEAST = World(
    devices={"a": [True, False], "b": [True], "c": [False, True]},
    slots={"a": 3, "b": 1, "c": 1},
    running=[Running("ns", "a", 0, 0), Running("ns", "a", 1, 0), Running("team", "b", 0, 0), Running("ns", "c", 1, 0)],
    waiting=[Waiting("team", 0, 1), Waiting("team", 1, 2)],
    quotas={"team": ({"name": "gpu", "selectors": [{"cel": {"expression": LARGE}}], "devices": 2}, False)},
)
"""A pod that its scheduler has nominated is about to get one of the two large devices that its quota allows."""


TAKEN_BACK = World(
    devices={"a": [False], "b": [False, False], "c": [False, False]},
    slots={"a": 1, "b": 2, "c": 2},
    running=[
        Running("ns", "a", 0, 0),
        Running("ns", "b", 0, 0),
        Running("ns", "b", None, 0),
        Running("ns", "c", 0, -1),
        Running("ns", "c", 1, 0),
    ],
    waiting=[Waiting("team", 0, 2), Waiting("ns", 2, 1)],
    quotas={
        "ns": ({"name": "gpu", "deviceClassName": "gpu", "devices": 0}, True),
        "team": ({"name": "gpu", "deviceClassName": "gpu", "devices": 3}, False),
    },
)
"""A pod is about to have a borrowed device in place of another one, and the owner of the quota takes two of three."""


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories())
@example((LEAST, [("end", "v0")]))
@example((TAKEN_BACK, [("end", "v4")]))
@in_virtual_time
async def test_each_pod_for_which_others_are_evicted_is_bound_or_was_refused_by_what_came_later(
    history: tuple[World, list[tuple[str, Any]]],
) -> None:
    world, steps = history
    site = Site(world)
    await played(site, steps)
    event(f"victims: {len(site.evicted)}")
    for victim, preemptor, number in site.evicted:
        found = site.pod(preemptor)
        later = site.events[number:]
        excused = found is None or any(concerns(found) for concerns in later)
        assert excused or (found is not None and found.node_name), f"{victim} was evicted for {preemptor}"


EVICTED_IN_TURN = World(
    devices={"a": [False, False], "b": [False, False], "c": [False]},
    slots={"a": 3, "b": 2, "c": 2},
    running=[
        Running("team", "a", 0, 0),
        Running("ns", "a", 1, 0),
        Running("ns", "a", None, 0),
        Running("ns", "b", 1, -1),
        Running("ns", "c", 0, 0),
        Running("ns", "c", None, 0),
    ],
    waiting=[Waiting("ns", 2, 1), Waiting("ns", 0, 1), Waiting("team", 2, 1)],
    quotas={},
)
"""A pod evicts one of its namespace, is bound, and is evicted itself for a third one of the same namespace."""


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.integers(0, 3))
@example(EVICTED_IN_TURN, 3)
@in_virtual_time
async def test_the_pods_for_which_others_are_evicted_are_within_their_quota(world: World, allowed: int) -> None:
    limit = {"name": "gpu", "deviceClassName": "gpu", "devices": allowed}
    world = replace(world, quotas=dict.fromkeys(NAMESPACES, (limit, False)))
    site = Site(world)
    await played(site, [])
    gone = {victim for victim, _, _ in site.evicted}
    for namespace in NAMESPACES:
        kept = [
            each
            for number, each in enumerate(world.running)
            if each.namespace == namespace and each.device is not None and f"v{number}" not in gone
        ]
        left = sum(not each.is_terminating for each in kept)
        asking = {preemptor for _, preemptor, _ in site.evicted} - gone
        own = [each for number, each in enumerate(world.waiting) if f"p{number}" in asking]
        wanted = sum(each.count for each in own if each.namespace == namespace)
        event(f"devices of preemptors: {wanted} of {allowed}")
        assert not wanted or wanted + left <= allowed
