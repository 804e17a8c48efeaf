"""The law of DeviceQuotas over random histories: what a namespace withholds from others never exceeds its quotas.

A whole service runs in virtual time over an API server in memory. Calls take time, and what they have done is shown
later. After each write, everything that is allocated or kept is counted anew, from the objects of the API server.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import event, given, settings
from hypothesis import strategies as st

from allocator import DeviceId
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.device_quotas import DEVICES
from extender.cluster.objects.pods import parse_pod
from extender.cluster.writes.pods import DISRUPTION
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ApiError, Event, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, RESOURCES, Resource
from extender.lab.cluster import ClaimController
from extender.tools.faults import RefusedError
from tests.extender.plugins.gangs.scenes import member
from tests.extender.plugins.quota.test_device_quota import elsewhere
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, request, solver
from tests.kit.objects.quotas import quota
from tests.kit.servers.memory import Transport, memory_api

_T = TypeVar("_T")

EXAMPLES: Final = int(os.environ.get("ACCOUNT_EXAMPLES", "25"))
NODES: Final = ("a", "b")
NAMESPACES: Final = ("ns", "other")
SIZES: Final = (10, 40)
"""The memory of devices, in Gi."""

BIG: Final = 40
SELECTOR: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{BIG}Gi")) >= 0'
LIMITS: Final[dict[str, Callable[[int], Object]]] = {
    "devices": lambda number: {"deviceClassName": "gpu", "devices": number},
    "memory": lambda number: {"deviceClassName": "gpu", "capacity": {"memory": f"{20 * number}Gi"}},
    "big": lambda number: {"selectors": [{"cel": {"expression": SELECTOR}}], "devices": number},
}

Happening = tuple[str, int]
"""What happens, and a number that chooses what it happens to."""


@dataclass(frozen=True)
class History:
    """Nodes with devices, quotas, and what happens.

    Attributes:
        sizes: for each node the memory of its devices.
        quotas: the limit of each of the two namespaces; None: the namespace has no quota.
        seed: of the times that calls take, and of their faults.
        lag: the seconds after which a write is shown.
        happenings: one after the other.
    """

    sizes: Sequence[Sequence[int]]
    quotas: Sequence[tuple[str, int] | None]
    seed: int
    lag: float
    happenings: Sequence[Happening]


KINDS: Final = (
    *("pod", "pod", "pods", "important", "important", "gang", "gang", "nothing", "nothing", "nothing"),
    *("end", "settle", "limit", "restart", "late"),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    sizes = [draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)) for _ in NODES]
    limits = st.tuples(st.sampled_from(sorted(LIMITS)), st.integers(0, 4))
    happenings = draw(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 30)), min_size=4, max_size=30))
    own = draw(limits), draw(st.none() | limits)
    return History(sizes, own, draw(st.integers(0, 2**16)), draw(st.sampled_from((0.0, 0.03, 0.3))), happenings)


class Lagging:
    """A watch that tells each event some time after it has happened, in order."""

    def __init__(self, state: ClusterState, lag: float) -> None:
        self._state, self._lag = state, lag

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self._state.replace(resource, objects, at)

    def apply(self, event: Event) -> None:
        if self._lag:
            asyncio.get_running_loop().call_later(self._lag, self._state.apply, event)
        else:
            self._state.apply(event)


@dataclass
class Slow(Transport):
    """Calls take some time, before they arrive and afterwards. Those of a process that has ended never arrive."""

    chance: Random = field(default_factory=Random)
    is_cut: bool = False

    async def _call(self, name: str, resource: Resource, call: Callable[[], Awaitable[_T]]) -> _T:
        await virtualtime.elapse(self.chance.choice((0, 0, 0.01, 0.1)))
        if self.is_cut:
            raise OutcomeUnknownError(name, "the process has ended")
        found = await super()._call(name, resource, call)
        await virtualtime.elapse(self.chance.choice((0, 0, 0.01, 0.1)))
        return found


class Account:
    """Counts what each namespace withholds after each event of the API server.

    Attributes:
        truth: the cluster as it is on the API server.
        victims: for each namespace, the pods that were evicted for its pods, by uid.
        broken: what was found, in words.
    """

    def __init__(self, sizes: Mapping[DeviceId, int]) -> None:
        self.truth = ClusterState()
        self.victims: dict[str, set[str]] = {}
        self.broken: list[str] = []
        self._sizes = sizes
        self._most: dict[ObjectKey, float] = {}
        self._is_suspended = False
        self._preemptors: dict[str, str] = {}

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self.truth.replace(resource, objects, at)

    def apply(self, event: Event) -> None:
        self.truth.apply(event)
        if event.resource == PODS:
            self._note_victims(event.object)
        if event.resource in {PODS, CLAIMS} and not self._is_suspended:
            for key, (used, limit) in self._use().items():
                if used > self._most.get(key, limit):
                    self.broken.append(f"{key}: {used} of {limit} withheld after {event.object['metadata']['name']}")
                self._most[key] = max(limit, min(used, self._most.get(key, limit)))

    def _note_victims(self, raw: RawObject) -> None:
        """A nomination names the victims, and the victims are marked before they are deleted."""
        pod = parse_pod(raw)
        self._preemptors |= dict.fromkeys(pod.kept.victims, pod.namespace)
        if any(each["type"] == DISRUPTION for each in (raw.get("status") or {}).get("conditions", ())):
            self.victims.setdefault(self._preemptors[pod.uid], set()).add(pod.uid)

    def forgive(self) -> None:
        """From now on, no more may be withheld than is withheld now: a quota was lowered, and everybody knows that."""
        self._most = {key: max(use) for key, use in self._use().items()}
        self._is_suspended = False

    def suspend(self) -> None:
        """What was decided before a quota was lowered may still be written."""
        self._is_suspended = True

    def _use(self) -> Mapping[ObjectKey, tuple[float, float]]:
        """What is withheld of each quota, and how much may be."""
        found = {}
        for key, each in self.truth.snapshot.device_quotas.items():
            [limit] = each.limits
            [(counts, hard)] = limit.hard.items()
            devices = self.withheld(key.namespace)
            if limit.selectors:
                devices = {device for device in devices if self._sizes[device] >= BIG}
            if counts == DEVICES:
                found[key] = float(len(devices)), hard.nano / 10**9
            else:
                found[key] = float(sum(self._sizes[device] for device in devices)), hard.nano / 10**9 / 2**30
        return found

    def withheld(self, namespace: str) -> set[DeviceId]:
        """The devices that others can't have because of a namespace."""
        snapshot = self.truth.snapshot
        claims = [each for key, each in snapshot.claims.items() if key.namespace == namespace]
        open_ones = {each.key for each in claims if each.claim.allocation is None}
        found = {r.device for each in claims if each.claim.allocation for r in each.claim.allocation.results}
        for key, each in snapshot.pods.items():
            if key.namespace == namespace and each.is_pending and not open_ones.isdisjoint(claim_keys(each)):
                found.update(each.kept.devices)
        return found


class Scene:
    """A cluster with a service and a scheduler.

    Attributes:
        account: counts what is withheld.
    """

    def __init__(self, history: History) -> None:
        sizes = dict(zip(NODES, history.sizes, strict=True))
        self.account = Account(
            {DeviceId(DRIVER, name, f"gpu-{n}"): size for name, own in sizes.items() for n, size in enumerate(own)}
        )
        self.api = memory_api(
            GPU, *(each for name, own in sizes.items() for each in (node(name), published(name, own)))
        )
        for namespace, limit in zip(NAMESPACES, history.quotas, strict=True):
            if limit is not None:
                kind, number = limit
                self.api.load(DEVICE_QUOTAS, quota({"name": "gpu", **LIMITS[kind](number)}, namespace=namespace))
        self.api.follow(self.account)
        self._history, self._chance, self._made = history, Random(history.seed), 0  # noqa: S311
        self._running: set[asyncio.Task[None]] = set()
        self._begin()

    def _begin(self) -> None:
        """A process starts, and knows what the API server has."""
        state = ClusterState()
        self.api.follow(Lagging(state, self._history.lag))
        self._transport = Slow(self.api, chance=self._chance)
        judge = replace(solver(), clock=asyncio.get_running_loop().time)
        self._service = make_extender(self._transport, state, judge, Settings(), off_loop=self._thread).service
        self._tick: asyncio.Task[None] | None = None

    async def _thread(self, work: Callable[[], _T]) -> _T:
        found = work()
        await virtualtime.elapse(self._chance.choice((0, 0.01, 0.1)))
        return found

    def _load(self, obj: Object, namespace: str) -> None:
        self.api.load(RESOURCES[obj["kind"]], obj if namespace == NAMESPACES[0] else elsewhere(obj, namespace))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def play(self) -> None:
        """All that happens, and the end of what it has begun."""
        for what, number in self._history.happenings:
            await getattr(self, what)(number)
            await self.scheduler(number)
            await self.turns(number)
            assert not self.account.broken, self.account.broken
        await virtualtime.elapse(30)
        assert not self.account.broken, self.account.broken

    # --- what happens -----------------------------------------------------------------------------------------

    async def pod(self, number: int, priority: int = 0) -> None:
        """A pod is made."""
        self._made += 1
        name, namespace = f"p{self._made}", NAMESPACES[number % 2]
        waiting = pod(name, f"{name}-c", priority=priority)
        waiting["metadata"]["finalizers"] = ["example.com/slow"]
        self._load(waiting, namespace)
        self._load(claim(f"{name}-c", request(count=1 + number // 2 % 2)), namespace)

    async def pods(self, number: int) -> None:
        """Some pods of both namespaces are made."""
        for place in range(4):
            await self.pod(number // 2 + place)

    async def important(self, number: int) -> None:
        await self.pod(number, priority=100)

    async def gang(self, number: int) -> None:
        """The pods of a gang are made."""
        self._made += 1
        size, priority = 2 + number // 2 % 3, number // 6 % 2 * 50
        for place in range(size):
            for each in member(f"g{self._made}-{place}", f"g{self._made}", size, priority=priority):
                self._load(each, NAMESPACES[number % 2])

    async def nothing(self, number: int) -> None:
        """Some time passes."""
        await virtualtime.elapse((0.05, 0.6, 3.0)[number % 3])

    async def scheduler(self, number: int) -> None:
        """A scheduler tries the pods in a random order, and binds those that pass while it tries the next ones."""
        pending = sorted(each.key for each in self.account.truth.snapshot.pods.values() if each.is_pending)
        self._chance.shuffle(pending)
        for key in pending[: 1 + number % 16]:
            each = self.account.truth.snapshot.pods.get(key)
            if each is None:
                continue
            try:
                raw = await self.api.get(PODS, each.key)
                result = await self._service.filter(FilterArgs(parse_pod(raw), list(NODES)))
            except (ApiError, RefusedError, TimeoutError):
                continue
            if result.passed:
                self._start(
                    self._bind(BindArgs(each.name, each.namespace, each.uid, self._chance.choice(result.passed)))
                )

    async def _bind(self, args: BindArgs) -> None:
        with suppress(RefusedError):
            await self._service.bind(args)

    async def turns(self, number: int) -> None:
        """The background tasks have a turn, which may go on while other things happen."""
        if self._tick is None or self._tick.done():
            self._tick = self._start(self._service.background.tick())
        await virtualtime.elapse((0.0, 0.02, 0.5)[number % 3])

    async def late(self, _: int) -> None:
        await virtualtime.elapse(70)

    async def end(self, number: int) -> None:
        """A pod is deleted."""
        keys = sorted(self.account.truth.snapshot.pods)
        if keys:
            with suppress(ApiError):
                await self.api.delete(PODS, keys[number % len(keys)])

    async def settle(self, _: int) -> None:
        """The pods that are being deleted come to their end, and controllers release claims."""
        for key, each in list(self.account.truth.snapshot.pods.items()):
            if each.deleting:
                await self.api.patch(PODS, key, {"metadata": {"finalizers": None}})
        await ClaimController(self.api).reconcile()

    async def limit(self, number: int) -> None:
        """A quota is changed. What was decided before may still be written."""
        keys = sorted(self.account.truth.snapshot.device_quotas)
        kind, _ = self._history.quotas[NAMESPACES.index(keys[number % len(keys)].namespace)] or ("", 0)
        self.account.suspend()
        spec = {"limits": [{"name": "gpu", **LIMITS[kind](number // 2 % 5)}]}
        await self.api.patch(DEVICE_QUOTAS, keys[number % len(keys)], {"spec": spec})
        await virtualtime.elapse(15)
        self.account.forgive()

    async def restart(self, _: int) -> None:
        """The process ends, whatever it is doing, and another one starts."""
        self._transport.is_cut = True
        self._begin()


def published(name: str, sizes: Sequence[int]) -> Object:
    """The devices of a node, with their memory."""
    raw = local_slice(name, len(sizes))
    for device, size in zip(raw["spec"]["devices"], sizes, strict=True):
        device["capacity"] = {"memory": {"value": f"{size}Gi"}}
    return raw


async def played(history: History) -> Scene:
    scene = Scene(history)
    await scene.play()
    return scene


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories())
def test_no_namespace_withholds_more_than_its_quotas_allow(history: History) -> None:
    scene = virtualtime.run(played(history))
    assert scene.account.broken == []
    snapshot = scene.account.truth.snapshot
    event(f"kept: {any(each.kept.devices for each in snapshot.pods.values())}")
    event(f"bound: {min(3, sum(bool(each.node_name) for each in snapshot.pods.values()))}")
    event(f"evicted: {min(3, sum(map(len, scene.account.victims.values())))}")


CALM: Final = ("pod", "pods", "important", "important", "nothing", "nothing", "settle")


@st.composite
def calm_histories(draw: st.DrawFn) -> History:
    """Pods only come, and quotas stay."""
    sizes = [draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)) for _ in NODES]
    limits = st.tuples(st.just("devices"), st.integers(0, 4))
    happenings = draw(st.lists(st.tuples(st.sampled_from(CALM), st.integers(0, 30)), min_size=8, max_size=30))
    own = draw(limits), draw(limits)
    return History(sizes, own, draw(st.integers(0, 2**16)), draw(st.sampled_from((0.0, 0.03, 0.3))), happenings)


@settings(max_examples=EXAMPLES, deadline=None)
@given(calm_histories())
def test_a_namespace_evicts_no_more_pods_than_its_quota_lets_it_have_devices(history: History) -> None:
    victims = virtualtime.run(played(history)).account.victims
    event(f"evicted: {min(3, sum(map(len, victims.values())))}")
    allowed = {name: limit[1] for name, limit in zip(NAMESPACES, history.quotas, strict=True) if limit is not None}
    assert all(len(evicted) <= allowed[name] for name, evicted in victims.items())
