"""One run: a cluster from a seed, and operations on it, each from its number; after each one, the audit.

The service's own code decides and writes: verbs, background tasks, one or two replicas. The API server, the claim
controller, kubelets and the scheduler are in this process; time is virtual.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import process_time
from typing import Any, Final

import orjson

from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver
from extender.framework.service import Service
from extender.framework.wire import decode_bind, decode_filter, decode_preempt
from extender.kube.api import ApiError, Event, RawObject, key_of
from extender.kube.resources import PODS
from extender.lab.cluster import EmbeddedCluster
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.corpus.chance import Draw, clocks, without_chance
from tests.corpus.log import Log
from tests.corpus.slowness import LateWatch, after_a_while
from tests.corpus.stage import load, replica_state
from tests.corpus.waiting import party
from tests.corpus.worlds import NEEDED, World, world
from tests.kit import virtualtime
from tests.kit.clusters import NOW
from tests.operations.audit import RunningAudit
from tests.simulation.actors import AttachingDrivers, People
from tests.simulation.chance import Chance
from tests.simulation.invariants import Judge, ViolationError
from tests.simulation.plan import CAPABILITIES, REPORTING
from tests.simulation.replica import leave_out_reports

EACH: Final = 500
"""Operations on one cluster."""

_MOST_PODS: Final = 16
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_SETTLED_SECONDS: Final = 0.05
"""After an operation. Late watches have told everything by then."""

_QUIET_TURNS: Final = 18
_QUIET_SECONDS: Final = 10.0
"""So many turns, so far apart, before the end is judged: what is held for nobody is given back within 90 s."""

_ERRORS: Final = (RefusedError, TimeoutError)
"""With these a scheduler tries a pod again."""


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
        seed: of the cluster, and of all draws.
        numbers: of the operations. Without one of them, the others are drawn as before.
    """

    seed: int
    numbers: tuple[int, ...]


@dataclass
class Outcome:
    """What has come of a run.

    Attributes:
        done: how many operations of each kind there were.
        bound: how many pods were bound.
        judged: how many allocations the audit has judged.
        cpu: seconds of the processor.
        violation: what does not hold; None: all holds.
        told: the operations, in words, up to the violation.
    """

    plan: Plan
    done: Counter[str] = field(default_factory=Counter)
    bound: int = 0
    judged: int = 0
    cpu: float = 0.0
    violation: ViolationError | None = None
    told: list[str] = field(default_factory=list)


def play(plan: Plan) -> Outcome:
    """Do all operations; equal plans have equal outcomes."""
    log, outcome, began = Log(), Outcome(plan), process_time()
    with without_chance(), log.taking():
        virtualtime.run(_played(plan, outcome, log))
    outcome.cpu = process_time() - began
    return outcome


def play_seed(seed: int) -> Outcome:
    """Do the operations of a seed."""
    return play(Plan(seed, tuple(range(EACH))))


def capabilities(seed: int) -> frozenset[str]:
    """What a run mixes."""
    chosen = set(Draw(f"capabilities {seed}").some(CAPABILITIES, 2, 6))
    return frozenset(chosen.union(*(NEEDED.get(each, set()) for each in chosen)))


async def _played(plan: Plan, outcome: Outcome, log: Log) -> None:
    run = _Run(plan, outcome, log)
    try:
        for number in plan.numbers:
            await run.do(number)
        await run.judge_the_end()
    except ViolationError as violation:
        outcome.violation = violation
    outcome.bound, outcome.judged = run.judge.bound, run.audit.judged
    await run.close()


class _Tap:
    """What an API server tells one replica, until the replica ends."""

    def __init__(self, sink: ClusterState | LateWatch) -> None:
        self._sink: ClusterState | LateWatch | None = sink

    def apply(self, event: Event) -> None:
        if self._sink is not None:
            self._sink.apply(event)

    def replace(self, resource: Any, objects: Any, at: int) -> bool:
        return self._sink is not None and self._sink.replace(resource, objects, at)

    def close(self) -> None:
        self._sink = None


@dataclass
class _Replica:
    extender: Extender
    tap: _Tap

    @property
    def service(self) -> Service:
        return self.extender.service


class _Run:
    def __init__(self, plan: Plan, outcome: Outcome, log: Log) -> None:
        self._plan, self._outcome, self._log = plan, outcome, log
        self._loop = asyncio.get_running_loop()
        draw = Draw(f"operations {plan.seed}")
        self._has = capabilities(plan.seed)
        self._world = world(plan.seed, self._has)
        self._settings = _settings(self._world)
        self._cluster = EmbeddedCluster(
            (),
            now=self._now,
            counts_cpu=self._settings.scheduling.counts_cpu,
            has_group_claims=self._settings.features.group_claims,
        )
        for each in self._world.objects:
            load(self._cluster, each)
        self._api = self._cluster.api
        self.judge, self.audit = Judge(self._api), RunningAudit(self._api)
        AttachingDrivers(self._api, Chance(f"drivers {plan.seed}"))
        self._is_late = draw(0.4)
        self._reports = draw(REPORTING)
        self._replicas = [self._started() for _ in range(2 if self._is_late else 1)]

    def _now(self) -> datetime:
        return NOW + timedelta(seconds=self._loop.time())

    def _started(self) -> _Replica:
        """A replica with nothing in its memory."""
        with clocks(self._loop.time):
            state = replica_state(self._settings)
            solver = make_solver(self._settings, self._loop.time)
            around = Surroundings(controllers=self._world.controllers, now=self._now)
            off_loop = after_a_while if self._is_late else at_once
            extender = make_extender(self._api, state, solver, self._settings, around=around, off_loop=off_loop)
        if not self._reports:
            leave_out_reports(extender)
        tap = _Tap(LateWatch(state) if self._is_late else state)
        self._api.follow(tap)
        return _Replica(extender, tap)

    # --- operations -----------------------------------------------------------------------------------------------

    async def do(self, number: int) -> None:
        """Do the operation of a number, and judge. Raises ViolationError."""
        draw = Draw(f"operation {self._plan.seed} {number}")
        what = draw.of(_DRAWN)
        self._outcome.done[what] += 1
        self._outcome.told.append(f"{number}: {what}")
        await _OPERATIONS[what](self, draw, number)
        await self._settle()
        self._judge()

    async def _settle(self) -> None:
        await virtualtime.elapse(_SETTLED_SECONDS)
        await self._cluster.settle()

    def _judge(self) -> None:
        for finding in self.audit.findings():
            raise ViolationError(f"audit: {finding.rule.value}", str(finding))
        if self.judge.violation is not None:
            raise self.judge.violation
        for line in self._log.lines:
            if line.startswith("error"):
                raise ViolationError("no unexpected error", line)
        self._log.lines.clear()

    async def _come(self, draw: Draw, number: int) -> None:
        """Pods come, with all that belongs to them."""
        if len(await self._pods()) >= _MOST_PODS:
            await self._leave(draw, number)
            return
        for each in party(draw, f"p{number}-", self._has):
            load(self._cluster, each)

    async def _try(self, draw: Draw, number: int) -> None:
        """A scheduler tries a pod."""
        del number
        if waiting := await self._waiting():
            await self._tried(draw.of(waiting), draw)

    async def _try_two(self, draw: Draw, number: int) -> None:
        """Two schedulers try a pod each, at the same time."""
        del number
        if waiting := await self._waiting():
            await asyncio.gather(*(self._tried(each, draw) for each in draw.some(waiting, 1, 2)))

    async def _turn(self, draw: Draw, number: int) -> None:
        """Time passes. Kubelets start pods, and the background tasks have a turn."""
        del number
        for pod in await self._pods():
            if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                with suppress(ApiError):
                    await self._api.patch_status(PODS, key_of(pod), {"status": {"phase": "Running"}})
        await self._ticked(draw.of([0.2, 0.2, 1.0, 3.0]))

    async def _ticked(self, seconds: float) -> None:
        await virtualtime.elapse(seconds)
        for each in self._replicas:
            background = each.service.background
            await background.tick()
            await asyncio.gather(*background.unfinished, return_exceptions=True)

    async def _leave(self, draw: Draw, number: int) -> None:
        """Pods that are finished are deleted, and some others."""
        del number
        pods = await self._pods()
        over = [each for each in pods if each["status"].get("phase") in _FINISHED]
        for each in [*over, *draw.some([each for each in pods if each not in over], 1, 3)]:
            with suppress(ApiError):
                await self._api.delete(PODS, key_of(each))

    async def _restart(self, draw: Draw, number: int) -> None:
        """A replica ends, and another one starts."""
        del number
        ended = draw.of(self._replicas)
        ended.tap.close()
        await ended.service.close()
        self._replicas[self._replicas.index(ended)] = self._started()

    async def _people(self, draw: Draw, number: int) -> None:
        """Somebody changes quotas, nodes, devices, taints, or ends pods."""
        del number
        await People(self._api, self._has).do(draw.of(_DEEDS), draw)

    # --- a scheduler ----------------------------------------------------------------------------------------------

    async def _pods(self) -> Sequence[RawObject]:
        return (await self._api.list(PODS)).items

    async def _waiting(self) -> list[RawObject]:
        return [each for each in await self._pods() if _waits(each)]

    async def _tried(self, pod: RawObject, draw: Draw) -> None:
        service = draw.of(self._replicas).service
        try:
            await self._cycle(service, pod, draw)
        except _ERRORS:
            return

    async def _cycle(self, service: Service, pod: RawObject, draw: Draw) -> None:
        names = sorted(service.state.snapshot.nodes)
        nominated = pod["status"].get("nominatedNodeName")
        passed: Sequence[str] = ()
        for asked in ([nominated] if nominated in names else [], names):
            if asked and not passed:
                passed = (await service.filter(decode_filter(_args(pod, asked)))).passed
        if not passed:
            await self._preempt(service, pod, names, draw)
            return
        args = decode_filter(_args(pod, list(passed)))
        best = max(zip(await service.prioritize(args), passed, strict=True))[1]
        metadata = pod["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        await service.bind(decode_bind(orjson.dumps({**named, "Node": best})))

    async def _preempt(self, service: Service, pod: RawObject, names: Sequence[str], draw: Draw) -> None:
        """Evict a pod of lower priority on each node, if the service agrees."""
        priority, offered = pod["spec"].get("priority", 0), {}
        for name in names if pod["spec"].get("preemptionPolicy") != "Never" else ():
            lower = [each for each in await self._pods() if _runs_on(each, name, below=priority)]
            if lower:
                offered[name] = {"Pods": [{"UID": draw.of(lower)["metadata"]["uid"]}], "NumPDBViolations": 0}
        if not offered:
            return
        found = await service.preempt(decode_preempt(orjson.dumps({"Pod": pod, "NodeNameToMetaVictims": offered})))
        if found:
            node = min(found)
            with suppress(ApiError):
                await self._api.patch_status(PODS, key_of(pod), {"status": {"nominatedNodeName": node}})
                for each in await self._pods():
                    if each["metadata"]["uid"] in found[node].uids:
                        await self._api.delete(PODS, key_of(each))

    # --- the end --------------------------------------------------------------------------------------------------

    async def judge_the_end(self) -> None:
        """When all is quiet. Raises ViolationError."""
        for _ in range(_QUIET_TURNS):
            await self._ticked(_QUIET_SECONDS)
            await self._settle()
        self._judge()
        self.judge.check_end()
        for finding in self.audit.held_twice():
            raise ViolationError(f"audit: {finding.rule.value}", str(finding))

    async def close(self) -> None:
        """All replicas end."""
        for each in self._replicas:
            await each.service.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _settings(made: World) -> Settings:
    """Those of the world, for one scheduler."""
    scheduling = {**made.settings["scheduling"], "schedulerNames": ["dra-scheduler"]}
    return Settings.model_validate({**made.settings, "scheduling": scheduling})


def _args(pod: RawObject, names: Sequence[str]) -> bytes:
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})


def _waits(pod: RawObject) -> bool:
    """Whether kube-scheduler tries a pod."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName") == "dra-scheduler"
        and pod["status"].get("phase") not in _FINISHED
        and "deletionTimestamp" not in pod["metadata"]
    )


def _runs_on(pod: RawObject, name: str, below: int) -> bool:
    return bool(pod["spec"].get("nodeName") == name and pod["spec"].get("priority", 0) < below)


_DEEDS: Final = (
    *("pods end", "pods end", "pods end", "a pod is deleted", "a driver publishes", "a driver publishes"),
    *("a node is cordoned", "a node leaves", "a taint comes", "taints go", "a quota is edited"),
)

_OPERATIONS: Final[Mapping[str, Callable[[_Run, Draw, int], Awaitable[None]]]] = {
    "pods come": _Run._come,
    "a pod is tried": _Run._try,
    "two pods are tried": _Run._try_two,
    "time passes": _Run._turn,
    "pods leave": _Run._leave,
    "a replica starts anew": _Run._restart,
    "something changes": _Run._people,
}
_WEIGHTS: Final = {
    "pods come": 22,
    "a pod is tried": 34,
    "two pods are tried": 8,
    "time passes": 12,
    "pods leave": 8,
    "a replica starts anew": 1,
    "something changes": 15,
}
_DRAWN: Final = tuple(name for name, weight in _WEIGHTS.items() for _ in range(weight))
