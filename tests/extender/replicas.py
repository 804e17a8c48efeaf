"""Several extenders over one API server, whose every call and every news from a watch is a step of its own.

What a scheduler and the passing of time would bring about is a program: what each extender is asked to do, in order.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from extender.background.deallocate import Deallocator
from extender.background.orphans import OrphanCollector
from extender.fakekube.api import MemoryApi
from extender.faults import Faults
from extender.kube.api import CLAIMS, ApiError, ObjectKey, OutcomeUnknownError, RawObject, Resource
from extender.kube.raw import Event
from extender.pods.claims import allocated_elsewhere, claim_keys
from extender.state.objects import ClaimObject, Pod
from extender.state.state import ClusterState
from extender.verbs.bind import Binder, BindError
from extender.writes.double_allocations import DoubleAllocations
from extender.writes.reservation import is_reserved
from extender.writes.writer import Writer
from tests.extender import virtualtime
from tests.extender.apis import NOW, Transport
from tests.extender.bindlaws import check
from tests.extender.clusters import solver
from tests.extender.interleaving import Step

_T = TypeVar("_T")

AHEAD: Final = timedelta(seconds=601)
"""What a clock is wrong by: more than any patience."""

FAULTS: Final = ("lost answer", "late", "conflict", "refused")


class Action(NamedTuple):
    """Something that an extender does: bind, or take claims from a pod for one of the reasons that there are."""

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


SWEEP: Final = Action("sweep")

Program = Sequence[Sequence[Action]]
"""Of one extender: what it does at the same time, and one after another."""


class Watch:
    """A watch that tells what happens when it is told to, claims apart from everything else."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.news: dict[str, deque[Event]] = {"claims": deque(), "pods": deque()}
        self.heard = dict.fromkeys(self.news, 0)

    def apply(self, event: Event) -> None:
        self.news["claims" if event.resource == CLAIMS else "pods"].append(event)

    def tell(self, of: str, count: int) -> None:
        """The next pieces of news."""
        self.heard[of] += count
        for _ in range(count):
            self.state.apply(self.news[of].popleft())

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self.state.replace(resource, objects, at)


class Gate(Transport):
    """Before each call, it stops; whoever lets it go on says what befalls the call."""

    def __init__(self, api: MemoryApi, seen: Callable[[Hashable], None]) -> None:
        super().__init__(api)
        self._seen = seen
        self.stops: list[tuple[str, asyncio.Future[str]]] = []
        self.landing: list[tuple[str, Callable[[], Awaitable[object]]]] = []

    async def stop(self, name: str) -> str:
        """Wait until it may go on; returns the fault, empty for none."""
        self._seen(name)
        stop: tuple[str, asyncio.Future[str]] = (name, asyncio.get_running_loop().create_future())
        self.stops.append(stop)
        fault = await stop[1]
        self.stops.remove(stop)
        return fault

    async def _call(self, name: str, resource: Resource, call: Callable[[], Awaitable[_T]]) -> _T:
        name = f"{name} {resource.plural}"
        fault = await self.stop(name)
        try:
            reply = await self._befallen(name, fault, call)
        except (ApiError, OutcomeUnknownError) as error:
            self._seen((name, str(error)))
            raise
        self._seen((name, orjson.dumps(reply)))
        return reply

    async def _befallen(self, name: str, fault: str, call: Callable[[], Awaitable[_T]]) -> _T:
        if fault == "conflict":
            raise ApiError(409, "Conflict", "changed")
        if fault == "refused":
            raise ApiError(403, "Forbidden", "not allowed")
        if fault == "late":
            self.landing.append((name, call))
            raise OutcomeUnknownError(name, "timed out")
        reply = await call()
        if fault == "lost answer":
            raise OutcomeUnknownError(name, "connection reset")
        return reply


class Replica:
    """One extender, and what it has seen so far."""

    def __init__(self, name: str, api: MemoryApi, program: Program) -> None:
        self.name = name
        self.seen: int = 0
        self.state = ClusterState()
        self.watch = Watch(self.state)
        api.follow(self.watch)
        self.gate = Gate(api, self.note)
        double_allocations = DoubleAllocations(count=lambda: None, tell=lambda _pod, _note: None)
        writer = Writer(self.gate, self.state, lambda: NOW)
        self.binder = Binder(
            self.state,
            writer,
            solver(),
            deadline=1000,
            double_allocations=double_allocations,
            off_loop=virtualtime.at_once,
        )
        self.deallocator = Deallocator(self.state, writer, self.binder.is_binding, Faults(), lambda _: None)
        self.tasks = [asyncio.ensure_future(self._work(index, each)) for index, each in enumerate(program)]

    def note(self, what: Hashable) -> None:
        """One of its tasks has got somewhere: what it does next depends on that, and on the news until then."""
        self.seen = hash((self.seen, what, self.heard))

    @property
    def is_going(self) -> bool:
        """It has not done all yet."""
        return not all(task.done() for task in self.tasks)

    @property
    def looks(self) -> bool:
        """What it knows matters to what it does next."""
        return not self.gate.stops or any(name.startswith("begin") for name, _ in self.gate.stops)

    @property
    def heard(self) -> tuple[int, ...]:
        """How many news it has heard, by watch."""
        return tuple(self.watch.heard.values())

    async def _work(self, index: int, actions: Sequence[Action]) -> None:
        for action in actions:
            await self.gate.stop(f"begin to {action}")
            self.note(("begin", index, action))
            answer = await self._does(action)
            self.note(("end", index, action, answer))

    def _does(self, action: Action) -> Coroutine[Any, Any, str]:
        if action.verb == "bind":
            return self._bind(action.pod, action.node)
        if action.verb == "sweep":
            return self._sweep()
        pod = self.state.snapshot.pods[ObjectKey("ns", action.pod)]
        return self._give_back(pod) if action.verb == "give back" else self._deallocate(pod)

    async def _bind(self, pod: str, node: str) -> str:
        try:
            await self.binder.bind(ObjectKey("ns", pod), f"uid-{pod}", node)
        except BindError as error:
            return str(error)
        return ""

    async def _give_back(self, pod: Pod) -> str:
        claims = [each for each in self._claims(pod) if each.claim.allocation is not None]
        may = [each for each in claims if not each.claim.reserved_for or is_reserved(each.claim, pod.uid)]
        if may and not pod.node_name:
            self.binder.give_back(pod, may)
            await self.binder.finish(1000)
        return ""

    async def _deallocate(self, pod: Pod) -> str:
        if not pod.node_name:
            self.deallocator.propose(pod, [allocated_elsewhere(each) for each in self._claims(pod)])
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
    """Extenders with their programs over one API server; a world for `tests.extender.interleaving`.

    Attributes:
        faults: how many writes of a run something befalls, at most.
        kinds: what may befall them.
        is_spare: news come only where somebody looks at what is known, before an action and while one waits for them,
            and then all at once: few enough orders to try them all.
    """

    api: MemoryApi
    programs: Sequence[Program]
    faults: int = 0
    kinds: Sequence[str] = FAULTS
    is_spare: bool = True
    replicas: list[Replica] = field(init=False)
    _is_new: bool = True
    _hearing: Replica | None = None
    _written: int = 0

    def __post_init__(self) -> None:
        self.api.follow(self)
        names = ("A", "B", "C")
        self.replicas = [Replica(*each) for each in zip(names, [self.api] * 3, self.programs, strict=False)]

    def steps(self) -> list[Step]:
        """To hear of something matters only to what the same extender does next: nobody else goes between."""
        last = self._hearing if self._hearing is not None and self._hearing.is_going else None
        going = [last] if last is not None else [each for each in self.replicas if each.is_going]
        landing = [each for each in self.replicas if each.gate.landing] if last is None else []
        return [step for each in going for step in self._of(each)] + [
            Step(f"{each.name}: {late[0]} lands late", partial(self._land, each, late))
            for each in landing
            for late in each.gate.landing
        ]

    def _of(self, replica: Replica) -> Iterator[Step]:
        for stop in replica.gate.stops:
            yield from self._on(replica, stop)
        for of, news in replica.watch.news.items():
            if news and (replica.looks or not self.is_spare):
                count = len(news) if self.is_spare else 1
                revision = news[count - 1].object["metadata"]["resourceVersion"]
                name = f"{replica.name}: hears of {of} up to revision {revision}"
                yield Step(name, partial(self._tell, replica, of, count))

    def _on(self, replica: Replica, stop: tuple[str, asyncio.Future[str]]) -> Iterable[Step]:
        name, future = stop
        if future.done():
            return
        yield Step(f"{replica.name}: {name}", partial(self._go, future))
        if self.faults and not name.startswith(("get", "list", "begin")):
            for fault in self.kinds:
                yield Step(f"{replica.name}: {name}: {fault}", partial(self._go, future, fault))

    def _go(self, future: asyncio.Future[str], fault: str = "") -> None:
        self._hearing = None
        self.faults -= bool(fault)
        future.set_result(fault)

    def _tell(self, replica: Replica, of: str, count: int) -> None:
        self._hearing = replica
        replica.watch.tell(of, count)

    def _land(self, replica: Replica, late: tuple[str, Callable[[], Awaitable[object]]]) -> None:
        replica.gate.landing.remove(late)
        # The API server in memory never waits, so that it is done at the first step.
        with suppress(StopIteration, ApiError):
            late[1]().__await__().__next__()

    def place(self) -> Hashable:
        heard = ((each.seen, each.heard, *(name for name, _ in each.gate.landing)) for each in self.replicas)
        return hash((self._written, self.faults, self._hearing and self._hearing.name, *heard))

    async def check(self) -> None:
        for task in (each for replica in self.replicas for each in replica.tasks if each.done()):
            task.result()
        if self._is_new:
            self._is_new = False
            await check(self.api)

    def apply(self, event: Event) -> None:
        """What is written is checked, and is where the run is."""
        self._is_new = True
        self._written = hash((self._written, event.resource.kind, event.type, orjson.dumps(event.object)))

    def replace(self, _resource: Resource, _objects: Iterable[RawObject], _at: int) -> bool:
        return True

    async def close(self) -> None:
        """End what still runs."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
