"""Several extenders over one API server, whose every call and every news from a watch is a step of its own.

What a scheduler and the passing of time would bring about is a program: what each extender is asked to do, in order.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from allocator import Reason
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.writer import Writer
from extender.framework.bind_errors import BindError
from extender.framework.pods.claims import ALLOCATED_ELSEWHERE
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError, revision_of
from extender.kube.resources import CLAIMS, PODS
from extender.lab.api import MemoryApi
from extender.plugins.deallocate import Deallocator
from extender.plugins.orphans import OrphanCollector
from extender.plugins.pinned_claims import PinnedClaims
from extender.tools.faults import Faults
from tests.extender.framework.bind.interleaving import Step
from tests.extender.framework.bind.replica_gates import Gate, Known, Late, Records, Stop, Watch
from tests.extender.framework.bind.worlds import check
from tests.kit.binders import binder_over
from tests.kit.servers.memory import NOW

AHEAD: Final = timedelta(seconds=601)
"""What a clock is wrong by: more than any patience."""

FAULTS: Final = ("lost answer", "late", "conflict", "refused")


class Action(NamedTuple):
    """An action of an extender: it binds a pod, serves a pinned pod, or takes claims from a pod. Users create pods."""

    verb: str
    pod: str = ""
    node: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


def bind(pod: str, node: str = "n") -> Action:
    return Action("bind", pod, node)


def give_back(pod: str) -> Action:
    """As if the pod's claims had not got ready in time, or were void."""
    return Action("give back", pod)


def deallocate(pod: str) -> Action:
    """As if the pod's claims kept it off every node."""
    return Action("deallocate", pod)


def serve(pod: str) -> Action:
    """The task for pinned pods serves a pod."""
    return Action("serve", pod)


def create(pod: str) -> Action:
    """A user creates a pod; no extender has heard of it then."""
    return Action("create", pod)


SWEEP: Final = Action("sweep")

Program = Sequence[Sequence[Action]]
"""Of one extender: what it does at the same time, and one after another."""


def program(random: Random, action: Callable[[Random], Action]) -> Program:
    """A program of one or two turns with up to three actions each."""
    return [[action(random) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 2))]


"""In an object's version, in a fence, and in a claim that was confirmed after one."""


class Replica:
    """One extender, and what it has seen so far."""

    def __init__(
        self,
        name: str,
        api: MemoryApi,
        records: Records,
        program: Program,
        made: Mapping[str, RawObject],
        *,
        has_group_claims: bool,
    ) -> None:
        self.name = name
        self.history = 0
        self.made = made
        self._is_single = len(program) == 1
        self._api = api
        self.state = Known(has_group_claims=has_group_claims)
        self.watch = Watch(self.state)
        api.follow(self.watch)
        self.gate = self.state.gate = Gate(api, records, self.note)
        writer = Writer(self.gate, self.state, lambda: NOW)
        self.binder = binder_over(self.gate, self.state, deadline=1000)
        self.deallocator = Deallocator(
            self.state, writer, self.binder.is_binding, Faults(), lambda: 0.0, lambda _: None
        )
        self.tasks = [asyncio.ensure_future(self._work(each)) for each in program]

    def note(self, what: Hashable) -> int:
        """One of its tasks has got somewhere: what it does next depends on that, and on the news until then."""
        self.history = hash((self.history, what, self.heard))
        return self.history

    @property
    def is_going(self) -> bool:
        """It has not done all yet."""
        return not all(task.done() for task in self.tasks)

    @property
    def heard(self) -> tuple[int, ...]:
        """How many news it has heard, by watch."""
        return tuple(self.watch.heard.values())

    @property
    def place(self) -> Hashable:
        """All that its future depends on, but for the API server."""
        return self.history, self.heard, *((late.name, late.history) for late in self.gate.landing)

    def _forget(self, number: int) -> None:
        """Between two actions of its only task, an extender is what it has heard and what it has in flight."""
        if self._is_single:
            self.history = hash((number, self.state.flights))

    async def _work(self, actions: Sequence[Action]) -> None:
        for number, action in enumerate(actions):
            self._forget(number)
            await self.gate.stop(f"begin to {action}", 0)
            await self._does(action)
        self._forget(len(actions))

    def _does(self, action: Action) -> Coroutine[Any, Any, str]:
        if action.verb == "bind":
            return self._bind(action.pod, action.node)
        if action.verb == "sweep":
            return self._sweep()
        if action.verb == "create":
            return self._create(action.pod)
        pod = self.state.snapshot.pods.get(ObjectKey("ns", action.pod))
        if pod is None:
            return self._nothing()
        if action.verb == "serve":
            return self._serve(pod)
        return self._give_back(pod) if action.verb == "give back" else self._deallocate(pod)

    async def _bind(self, pod: str, node: str) -> str:
        try:
            await self.binder.bind(ObjectKey("ns", pod), f"uid-{pod}", node)
        except BindError as error:
            return str(error)
        return ""

    async def _create(self, pod: str) -> str:
        with suppress(ApiError):  # it is there already
            self._api.load(PODS, self.made[pod])
        return ""

    async def _nothing(self) -> str:
        """The pod of the action is not known yet."""
        return ""

    async def _serve(self, pod: Pod) -> str:
        try:
            await PinnedClaims(self.binder.claims).serve(pod)
        except (BindError, WriteRefusedError, OutcomeUnknownError) as error:
            return str(error)
        return ""

    async def _give_back(self, pod: Pod) -> str:
        claims = [each for each in self._claims(pod) if each.claim.allocation is not None]
        may = [
            each for each in claims if not each.claim.reserved_for or each.claim.is_reserved_for(pod.uid, pod.pod_group)
        ]
        if may and not pod.node_name:
            self.binder.give_back(pod, may, "not ready in time")
            await self.binder.finish(1000)
        return ""

    async def _deallocate(self, pod: Pod) -> str:
        if not pod.node_name:
            self.deallocator.propose(
                pod, [Reason(ALLOCATED_ELSEWHERE, claim=each.claim.name) for each in self._claims(pod)]
            )
            await self.deallocator.tick()
        return ""

    async def _sweep(self) -> str:
        OrphanCollector(self.state, self.binder, lambda: NOW + AHEAD, Faults()).look()
        await self.binder.finish(1000)
        return ""

    def _claims(self, pod: Pod) -> list[ClaimObject]:
        known = (self.state.snapshot.claims.get(key) for key in claim_keys(pod))
        return [each for each in known if each is not None]


@dataclass
class Replicas:
    """Extenders with their programs over one API server; a world for `tests.extender.framework.bind.interleaving`.

    Attributes:
        faults: how many writes of a run something befalls, at most.
        kinds: what may befall them.
        is_spare: news come only where somebody looks at what is known, and just before: few enough orders to try them
            all. Each extender has one task then.
        has_group_claims: whether claims may be reserved for PodGroups.
        made: pods that users may create, by name.
    """

    api: MemoryApi
    programs: Sequence[Program]
    faults: int = 0
    kinds: Sequence[str] = FAULTS
    is_spare: bool = True
    has_group_claims: bool = False
    made: Mapping[str, RawObject] = field(default_factory=dict)
    replicas: list[Replica] = field(init=False)
    _records: Records = field(default_factory=Records)
    _checked: dict[str, int] | None = None

    def __post_init__(self) -> None:
        self.api.follow(self._records)
        self.replicas = [
            Replica(name, self.api, self._records, each, self.made, has_group_claims=self.has_group_claims)
            for name, each in zip("ABC", self.programs, strict=False)
        ]

    def steps(self) -> list[Step]:
        """What each replica can do, hear of, or have landed."""
        return [step for each in self.replicas for step in self._of(each)]

    def _of(self, replica: Replica) -> Iterator[Step]:
        for stop in replica.gate.stops:
            yield from self._calls(replica, stop) if stop.looks_from is None else self._looks(replica, stop)
        if not self.is_spare and replica.is_going:
            for of in (of for of, news in replica.watch.news.items() if news):
                yield Step(f"{replica.name}: hears of {of}", partial(replica.watch.tell, of))
        for late in replica.gate.landing:
            yield Step(f"{replica.name}: {late.name} lands late", partial(self._land, replica, late))

    def _looks(self, replica: Replica, stop: Stop) -> Iterator[Step]:
        """With each state of its knowledge that there can be: one watch may be further behind than the other."""
        assert stop.looks_from is not None
        claims, pods = replica.watch.news["claims"], replica.watch.news["pods"]
        known = [replica.state.seen(CLAIMS), *(revision_of(each.object) for each in claims)]
        least = next((count for count, at in enumerate(known) if at >= stop.looks_from), None)
        if least is None:
            return
        most = (len(claims), len(pods)) if self.is_spare else (least, 0)
        for of_claims in range(most[0], least - 1, -1):
            for of_pods in range(most[1], -1, -1):
                name = f"{replica.name}: hears of {of_claims} claims and {of_pods} pods, {stop.name}"
                yield Step(name, partial(self._look, replica, stop, of_claims, of_pods), replica.name)

    def _calls(self, replica: Replica, stop: Stop) -> Iterator[Step]:
        name, by, kind = f"{replica.name}: {stop.name}", replica.name, frozenset({stop.name.split()[-1]})
        if not stop.is_write:
            yield Step(name, partial(self._go, replica, stop), by, reads=kind)
            return
        yield Step(name, partial(self._go, replica, stop), by, writes=kind)
        for fault in self.kinds if self.faults else ():
            writes = (kind if fault == "lost answer" else frozenset()) | {"faults"}
            yield Step(f"{name}: {fault}", partial(self._go, replica, stop, fault), by, writes=writes)

    def _look(self, replica: Replica, stop: Stop, of_claims: int, of_pods: int) -> None:
        replica.watch.tell("claims", of_claims)
        replica.watch.tell("pods", of_pods)
        self._go(replica, stop)

    def _go(self, replica: Replica, stop: Stop, fault: str = "") -> None:
        replica.state.may_look = stop.looks_from is not None or not self.is_spare
        self.faults -= bool(fault)
        stop.future.set_result(fault)

    def _land(self, replica: Replica, late: Late) -> None:
        replica.gate.landing.remove(late)
        # The API server in memory never waits, so that it is done at the first step.
        with suppress(StopIteration, ApiError):
            late.call().__await__().__next__()

    def place(self) -> Hashable:
        return hash((*self._records.written.values(), self.faults, *(each.place for each in self.replicas)))

    async def check(self) -> None:
        for task in (each for replica in self.replicas for each in replica.tasks if each.done()):
            task.result()
        if self._checked != self._records.written:
            self._checked = dict(self._records.written)
            await check(self.api)

    async def close(self) -> None:
        """End what still runs."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
