"""One history: a world from a plan, in virtual time, until all faults have ceased and all is quiet."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from time import process_time
from typing import Any, Final

import orjson

from extender.config.settings import Settings
from extender.kube.api import ApiError, Event, EventType, RawObject, key_of
from extender.kube.connection.transport import HttpRequest
from extender.kube.resources import CLAIMS, DAEMON_SETS, EVENTS, LEASES, POOL_REQUESTS, Resource
from extender.lab.api import MemoryApi
from extender.lab.manifests import LOADED
from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from extender.tools.faults import RefusedError
from tests.corpus.chance import Draw, without_chance
from tests.corpus.log import Log
from tests.corpus.machines import CONTROLLER
from tests.kit import virtualtime
from tests.kit.clusters import NOW
from tests.kit.controllers import Fault, Licenses
from tests.simulation import plan as plans
from tests.simulation.actors import AttachingDrivers, Kubelets, People, control_claims, with_kubelet
from tests.simulation.chance import Chance
from tests.simulation.fitting import fits
from tests.simulation.invariants import Judge, ViolationError, users
from tests.simulation.kept import Moment
from tests.simulation.link import ADMISSION, Link
from tests.simulation.owned import WorldLoop
from tests.simulation.plan import Plan, Span, Step
from tests.simulation.replica import AwayError, Replica
from tests.simulation.scheduler import KubeScheduler
from tests.simulation.seeds import plan_of
from tests.simulation.server import SimulatedServer

QUIET_SECONDS: Final = 60.0
"""After the last fault, every pod that can run runs within this time."""

IDLE_SECONDS: Final = 90.0
"""After which no claim is held by nobody: the patience of `extender.plugins.orphans`, and two of its looks."""

_KINDS: Final = {**LOADED, DAEMON_SETS.kind: DAEMON_SETS, POOL_REQUESTS.kind: POOL_REQUESTS}
_ENDS: Final = {plans.CRASH, plans.RESTART, plans.CRASH_AT_WRITE}
"""What ends a process."""

_DOWN_SECONDS: Final = (0.5, 2.0, 20.0)
_SCHEDULER: Final = "dra-scheduler"
_DISTURBING: Final = {*plans.HAPPENINGS, plans.CONTROLLER, plans.MADE_AGAIN_WHILE_BOUND} - set(plans.CALM)
"""What may take from a gang what it has been promised."""

_WRITES: Final = (
    *[("PATCH", "/pods/"), ("PUT", "/resourceclaims/"), ("PATCH", "/resourceclaims/"), ("POST", "/resourceclaims")] * 2,
    *[("POST", "/binding"), ("DELETE", "/pods/")],
)
"""Methods, and parts of paths."""

_NO_WRITES: Final = (f"/{LEASES.plural}", f"/{EVENTS.plural}")
"""Parts of the paths of writes that change nothing for pods and claims."""

_QUESTIONS: Final = (UNSUITABLE_NODES, ALLOCATE, DEALLOCATE)
_AWAY: Final = (Fault(error="connection refused"), Fault(reply_lost="timed out"), Fault(fault="HTTP 500"))

_JUDGED_SECONDS: Final = 0.25
"""Between two looks of the judge while something happens."""

_CALM_JUDGED_SECONDS: Final = 2.5
"""Between two looks while nothing does."""

_CALM_AFTER_SECONDS: Final = 5.0


@dataclass
class Outcome:
    """What has come of a history.

    Attributes:
        seconds: virtual seconds that have passed.
        cpu: seconds of the processor that it took.
        bound: how many pods were bound.
        violation: what did not hold; None: all held.
        counted: how often each law was checked.
        logged: what the service has logged.
    """

    plan: Plan
    seconds: float = 0.0
    cpu: float = 0.0
    bound: int = 0
    violation: ViolationError | None = None
    counted: Counter[str] = field(default_factory=Counter)
    logged: list[str] = field(default_factory=list)


def play(plan: Plan, sober: Callable[[], None] = lambda: None) -> Outcome:
    """Let a history happen; equal plans have equal outcomes.

    Args:
        sober: is called before it is asked whether a pod that waits could be bound: planted mistakes end.
    """
    log, outcome, began = Log(), Outcome(plan), process_time()
    with without_chance(), log.taking(), asyncio.Runner(loop_factory=WorldLoop) as runner:
        runner.run(_played(plan, outcome, log, sober))
    outcome.logged, outcome.cpu = log.lines, process_time() - began
    return outcome


def play_seed(seed: int) -> Outcome:
    """Let the history of a seed happen."""
    return play(plan_of(seed))


async def _played(plan: Plan, outcome: Outcome, log: Log, sober: Callable[[], None]) -> None:
    world = _World(plan, log, sober)
    try:
        await world.live()
    except ViolationError as violation:
        outcome.violation = violation
    finally:
        await world.end()
        outcome.seconds = asyncio.get_running_loop().time()
        outcome.bound, outcome.counted = world.judge.bound, world.judge.counted


class _World:
    def __init__(self, plan: Plan, log: Log, sober: Callable[[], None]) -> None:
        self._plan, self._log, self._sober = plan, log, sober
        self._loop = asyncio.get_running_loop()
        self._chance = Chance(f"world {plan.seed}")
        numbers = count(1)
        self._api = MemoryApi(now=self._now, new_uid=lambda: f"{next(numbers):08}-made")
        for each in plan.objects:
            self._load(each)
        evictions, faults = plan.settings["evictions"], {each.what for each in plan.steps}
        lives = plan.replicas + 2 * sum(each.what in _ENDS for each in plan.steps)
        self.judge = Judge(
            self._api,
            now=self._loop.time,
            caps=(evictions["forPod"] * lives, evictions["ofNamespace"] * lives),
            fits=self._fits,
            is_sole=plan.replicas == 1 and not faults & _ENDS,
        )
        self._controllers = _controllers(plan)
        self._server = SimulatedServer(self._api, self.judge.evicts)
        Kubelets(self._api, self._chance)
        AttachingDrivers(self._api, self._chance)
        self._settings = Settings.model_validate(plan.settings)
        self._replicas = [
            self._replica(f"replica-{number}", self._link, self._skew(number)) for number in range(plan.replicas)
        ]
        self._scheduler = KubeScheduler(self._api, self._replicas, self._chance, _SCHEDULER, plan.hears)
        self._mistakes: list[BaseException] = []
        """Of the simulation itself: errors of tasks that nobody waits for."""
        self._loop.set_exception_handler(lambda _, told: self._mistakes.extend(filter(None, [told.get("exception")])))
        self._faults: Counter[tuple[int, str]] = Counter()
        self._ends_at: list[tuple[tuple[str, str], float]] = []
        """At which writes a replica is to end, and for how long."""
        self._writes = Counter[str]()
        """Of the replicas, by method and path, without leases and Events."""
        self._made_again = 0
        """How many pods are to be made again while they are bound."""
        self._api.follow(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._begin(control_claims(self._api, self._chance, has_group_claims=self._settings.features.group_claims))
        self._begin(self._scheduler.run())

    def _now(self) -> datetime:
        return NOW + timedelta(seconds=self._loop.time())

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _replica(self, name: str, link: Callable[[str], Link], skew: float) -> Replica:
        return Replica(name, link, self._settings, self._controllers, self._chance, skew, reports=self._plan.reports)

    def _skew(self, number: int) -> float:
        return self._chance.between("skew", -1800.0, 1800.0) if number and plans.SKEW in self._plan.faults else 0.0

    def _link(self, name: str) -> Link:
        link = Link(self._server, self._chance, name, self._heed_write)
        number = int(name.rpartition("-")[2])
        link.faults.update(fault for (replica, fault), times in self._faults.items() if replica == number and times)
        return link

    def _load(self, obj: RawObject) -> None:
        with suppress(ApiError):  # its name is taken
            self._api.load(_KINDS[obj["kind"]], with_kubelet(obj))

    # --- time ---------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """From the start to the end. Raises ViolationError."""
        for each in self._replicas:
            each.start()
        moments: list[tuple[float, int, Step | Span, bool]] = []
        for number, step in enumerate(self._plan.steps):
            moments.append((step.at, number, step, True))
        for number, span in enumerate(self._plan.spans, start=len(moments)):
            moments += [(span.begins, number, span, True), (span.ends, number, span, False)]
        for at, _, what, begins in sorted(moments, key=lambda moment: moment[:2]):
            await self._until(at)
            if isinstance(what, Step):
                self._begin(self._happen(what))
            else:
                self._turn(what, begins=begins)
        await self._until(max([self._plan.seconds, *(span.ends for span in self._plan.spans)]))
        await self._judge_the_end()

    async def _until(self, at: float) -> None:
        """Let time pass. Raises ViolationError: something has happened that must not happen."""
        while True:
            if self._mistakes:
                raise self._mistakes[0]
            if self.judge.violation is not None:
                raise self.judge.violation
            if errors := [line for line in self._log.lines if line.startswith("error")]:
                raise ViolationError("no unexpected error", errors[0])
            left = at - self._loop.time()
            if left <= 0:
                return
            self.judge.look()
            is_calm = self._loop.time() - self.judge.changed_at > _CALM_AFTER_SECONDS
            await virtualtime.elapse(min(left, _CALM_JUDGED_SECONDS if is_calm else _JUDGED_SECONDS))

    def _turn(self, span: Span, *, begins: bool) -> None:
        """A fault begins or ceases; several of a kind may overlap."""
        self._faults[span.replica, span.fault] += 1 if begins else -1
        lasts = any(times for (_, fault), times in self._faults.items() if fault != ADMISSION)
        self.judge.calm_since = None if lasts else self._loop.time()
        link = self._replicas[span.replica].link
        if link is not None and self._faults[span.replica, span.fault]:
            link.faults.add(span.fault)
        elif link is not None:
            link.faults.discard(span.fault)

    async def _happen(self, step: Step) -> None:
        draw = Draw(f"step {self._plan.seed} {step.number}")
        for each in step.objects:
            self._load(each)
        match step.what:
            case "":
                return
            case plans.CRASH:
                await self._again(draw.of(self._replicas), draw.of(_DOWN_SECONDS))
            case plans.RESTART:
                await self._replaced()
            case plans.CRASH_AT_WRITE:
                self._ends_at.append((draw.of(_WRITES), draw.of(_DOWN_SECONDS)))
            case plans.MADE_AGAIN_WHILE_BOUND:
                self._made_again += 1
            case plans.RELIST:
                self._server.compact()
            case plans.CONTROLLER:
                for controller in self._controllers.values():
                    controller.faults.setdefault(draw.of(_QUESTIONS), []).append(draw.of(_AWAY))
            case _:
                await People(self._api, self._plan.has).do(step.what, draw)

    def _heed_write(self, name: str, request: HttpRequest) -> None:
        """A replica has written something, and does not know it yet: it may be time for it to end."""
        if not any(part in request.path for part in _NO_WRITES):
            self._writes[f"{request.method} {request.path}"] += 1
        for each in self._ends_at:
            (method, path), seconds = each
            if request.method == method and path in request.path:
                self._ends_at.remove(each)
                replica = next(each for each in self._replicas if each.name == name)
                self._begin(self._again(replica, seconds))
                return

    def replace(self, _resource: Resource, _objects: Iterable[RawObject], _at: int) -> bool:
        """The objects at the start."""
        return True

    def apply(self, event: Event) -> None:
        """An object has changed: perhaps a pod is being bound that is to be made again meanwhile."""
        reserved = users(event.object) if self._made_again and event.resource == CLAIMS else []
        if event.type is not EventType.DELETED and reserved:
            self._made_again -= 1
            names = {each["uid"] for each in reserved}
            self._begin(
                People(self._api, self._plan.has).make_again(names, self._chance.between("made again", 0, 0.02))
            )

    async def _replaced(self) -> None:
        """A rolling restart."""
        for replica in self._replicas:
            await replica.stop()
            await self._again(replica, 1.0)
            await virtualtime.elapse(5.0)

    async def _again(self, replica: Replica, seconds: float) -> None:
        """A replica ends, and starts again after a while."""
        await replica.kill()
        await virtualtime.elapse(seconds)
        if not replica.is_up:
            replica.start()

    # --- the end --------------------------------------------------------------------------------------------------

    async def _judge_the_end(self) -> None:
        self._ends_at.clear()  # writes that have not come yet are no faults any more
        self._made_again = 0
        await self._until(self._loop.time() + QUIET_SECONDS)
        if waiting := await self._could_run():
            await self._until(self._loop.time() + QUIET_SECONDS / 4)
            self._sober()
            if found := await self._could_run(waiting):
                message = f"pod {found[0]} can be bound, and waits {QUIET_SECONDS:g} s after the last fault"
                raise ViolationError("every pod that can run runs", message)
        if self._scheduler.flushed:
            raise ViolationError("nobody waits for a flush", f"pod {self._scheduler.flushed[0]}")
        held = self.judge.held_for_waiting()
        if self.judge.idle_claims() or held:
            await self._until(self._loop.time() + IDLE_SECONDS)
        self.judge.counted["no claim is held for a pod that waits"] += 1
        if left := held.items() & self.judge.held_for_waiting().items():
            name, what = min(left)
            raise ViolationError("no claim is held for a pod that waits", f"claim {name} has {what}")
        self.judge.check_end()
        self._check_memory()
        await self._check_caches()
        if not _DISTURBING & {each.what for each in self._plan.steps}:
            self.judge.check_gangs()
        await self._until(self._loop.time())
        if self._plan.calm and "resource quotas" not in self._plan.has:
            await self._check_calm()

    async def _check_calm(self) -> None:
        """While nothing happens, nothing is written, and so no pod gets a node. Raises ViolationError.

        kube-scheduler tries the pods that wait every five minutes, and again and again those whose claim a
        ResourceQuota refuses. Each replica may say once in a pod's condition why the pod waits.
        """
        self._writes.clear()
        await self._until(self._loop.time() + self._plan.calm)
        self.judge.counted["nothing is written while nothing happens"] += 1
        for what, times in self._writes.items():
            if times > (self._plan.replicas if "/pods/" in what and what.endswith("/status") else 0):
                raise ViolationError("nothing is written while nothing happens", f"{times} times {what}")
        self._check_memory()
        await self._check_caches()

    def _check_memory(self) -> None:
        """No replica assumes an allocation any more but for binds that are under way. Raises ViolationError."""
        for each in self._replicas:
            if each.extender is None:
                continue
            self.judge.counted["nothing stays assumed"] += 1
            snapshot = each.extender.service.state.snapshot
            is_binding = each.extender.service.binder.is_binding
            left = [taken for taken in snapshot.assumed.values() if not is_binding(taken.pod_uid)]
            if left or snapshot.keeping:
                message = f"{each.name}: {len(left)} allocations and {len(snapshot.keeping)} nominations"
                raise ViolationError("nothing stays assumed", message)

    async def _check_caches(self) -> None:
        """Each replica knows the claims that there are. Raises ViolationError."""
        self.judge.counted["a cache is what the API server has"] += 1
        wrong = list(self._replicas)
        for patience in (0.0, 3.0, 10.0):
            await self._until(self._loop.time() + patience)
            if not (wrong := [each for each in wrong if not self._knows_claims(each)]):
                return
        raise ViolationError("a cache is what the API server has", f"{wrong[0].name} knows other claims")

    def _knows_claims(self, replica: Replica) -> bool:
        if replica.extender is None or not replica.is_ready:
            return True
        known = replica.extender.service.state.snapshot.claims
        return {key: each.claim.uid for key, each in known.items()} == self.judge.claims()

    def _fits(self, moment: Moment, pod: RawObject) -> bool:
        return fits(moment, pod, self._scheduler.nodes_for(pod), self._settings, self._loop.time)

    async def _could_run(self, bound: Sequence[str] = ()) -> list[str]:
        """The pods that wait although a new replica, which remembers nothing, finds a node for them.

        Args:
            bound: only these pods count, and the new replica has to bind them, too.
        """
        if not self._scheduler.waiting():
            return []
        fresh = self._replica("replica-0", self._quiet_link, 0.0)
        fresh.start()
        try:
            await fresh.get_ready()
            found = []
            for pod in self._scheduler.waiting():
                self.judge.counted["every pod that can run runs"] += 1
                if (not bound or str(key_of(pod)) in bound) and await self._passes(fresh, pod, is_bound=bool(bound)):
                    found.append(str(key_of(pod)))
            return found
        finally:
            await fresh.kill()

    async def _passes(self, replica: Replica, pod: RawObject, *, is_bound: bool) -> bool:
        names, metadata = self._scheduler.nodes_for(pod), pod["metadata"]
        asked = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
        try:
            passed = (await replica.filter(asked))[0] if names else []
            if passed and is_bound:
                scores = await replica.prioritize(orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": passed}))
                best = max(zip(scores, passed, strict=True))[1]
                named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"]}
                await replica.bind(orjson.dumps({**named, "PodUID": metadata["uid"], "Node": best}))
        except (RefusedError, TimeoutError, AwayError):
            return False
        return bool(passed)

    def _quiet_link(self, name: str) -> Link:
        return Link(self._server, self._chance, name)

    async def end(self) -> None:
        """Everybody ends."""
        for each in self._replicas:
            await each.kill()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _controllers(plan: Plan) -> dict[str, Licenses]:
    """The controller of negotiated claims, if the settings name it."""
    draw = Draw(f"licenses {plan.seed}")
    names = [each["name"] for each in plan.settings["controllers"]]
    return {CONTROLLER: Licenses(left=draw.number(0, 4))} if CONTROLLER in names else {}
