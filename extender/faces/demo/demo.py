"""The demo as a whole: its scenes, who takes part in it, and how time passes there.

Each scene shows one thing, with pods of its own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

from extender.client import AsyncAutoscalerClient, UnreachableError
from extender.faces.demo.players import Autoscaler, Calls, Scheduler, Workloads, pod_of
from extender.kube.api import ObjectKey
from extender.lab.api import MemoryApi

_PATIENT_SECONDS: Final = 0.2
_MOST_SECONDS: Final = 90.0
"""The longest time that a scene waits for something before it goes on without it."""

PEOPLE: Final = "people"
"""The namespace of notebooks. The demo announces nothing about them."""

_NOTEBOOKS: Final = 4
"""The most notebooks at a time: they leave room for the other pods."""


@dataclass(slots=True)
class Stage:
    """The stage where scenes are played.

    Attributes:
        chance: random numbers from the seed.
        pause: waits for some seconds of the demo.
    """

    workloads: Workloads
    autoscaler: Autoscaler
    chance: random.Random
    pause: Callable[[float], Awaitable[None]]
    _made: Counter[str] = field(default_factory=Counter)

    async def pod(
        self,
        namespace: str,
        stem: str,
        template: str,
        seconds: tuple[int, int],
        **more: Any,  # noqa: ANN401 - fields of its spec
    ) -> ObjectKey:
        """Make a pod that runs for a time within bounds; its name is the stem and a number."""
        self._made[stem] += 1
        key = ObjectKey(namespace, f"{stem}-{self._made[stem]}")
        await self.workloads.submit(pod_of(key, template, self.chance.randint(*seconds), **more))
        return key

    def run(self, *keys: ObjectKey) -> bool:
        """Whether pods have a node, or have ended."""
        pods = (self.workloads.pods.get(key) for key in keys)
        return all(pod is None or pod["spec"].get("nodeName") for pod in pods)

    def are_over(self, *keys: ObjectKey) -> bool:
        """Whether pods have ended, so that their devices are free."""
        pods = (self.workloads.pods.get(key) for key in keys)
        return all(pod is None or pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)

    async def until(self, holds: Callable[..., bool], *keys: ObjectKey) -> None:
        """Wait until something holds for pods, but not for ever."""
        waited = 0.0
        while waited < _MOST_SECONDS and not holds(*keys):
            await self.pause(_PATIENT_SECONDS)
            waited += _PATIENT_SECONDS


Scene: TypeAlias = Callable[[Stage], Awaitable[None]]


async def _more_than_there_is(stage: Stage) -> None:
    """More pods than devices."""
    trainings = [await stage.pod("research", "train", "four-large", (12, 18)) for _ in range(3)]
    await stage.until(stage.are_over, *trainings)


async def _impossible(stage: Stage) -> None:
    """A pod that can run nowhere."""
    giant = await stage.pod("vision", "render", "giant-gpu", (8, 12))
    await stage.pause(8)
    await stage.workloads.withdraw(giant)
    large = await stage.pod("vision", "render", "large-gpu", (8, 12))
    await stage.until(stage.are_over, large)


async def _quota(stage: Stage) -> None:
    """A pod that waits for quota, while there are free devices."""
    pods = [await stage.pod("speech", "transcribe", "gpu", (10, 16)) for _ in range(3)]
    await stage.until(stage.are_over, *pods)


async def _gang(stage: Stage) -> None:
    """Pods that get devices together."""
    group = {"dra-extender.dev/group": f"solver-{stage.chance.randint(100, 999)}", "dra-extender.dev/group-size": "3"}
    pods = [await stage.pod("research", "solver", "two-large", (10, 14), annotations=group) for _ in range(2)]
    await stage.pause(7)
    pods.append(await stage.pod("research", "solver", "two-large", (10, 14), annotations=group))
    await stage.until(stage.run, *pods)
    await stage.until(stage.are_over, *pods)


async def _preemption(stage: Stage) -> None:
    """A pod is evicted for its devices."""
    batch = [await stage.pod("research", "batch", "four-large", (25, 30)) for _ in range(2)]
    await stage.until(stage.run, *batch)
    await stage.pause(4)
    urgent = await stage.pod("research", "urgent", "four-large", (8, 12), priorityClassName="urgent")
    await stage.until(stage.run, urgent)
    await stage.until(stage.are_over, urgent)
    await stage.until(stage.are_over, *batch)


async def _growth(stage: Stage) -> None:
    """A new node for a pod that waits."""
    stage.autoscaler.may_add = 1
    trainings = [await stage.pod("research", "train", "four-large", (15, 20)) for _ in range(3)]
    await stage.until(stage.are_over, *trainings)
    stage.autoscaler.may_add = 0
    await stage.pause(5)
    await stage.autoscaler.remove_nodes()


SCENES: Final[Mapping[str, Scene]] = {
    "three trainings need all large GPUs of a node, and there are two such nodes": _more_than_there_is,
    "a pod asks for a GPU that no node has; its owner reads why, and asks for less": _impossible,
    "team speech may have two GPUs at a time (a DeviceQuota), and starts three pods": _quota,
    "three pods are useful only together (a gang), and the third comes late: devices for all, or for none": _gang,
    "an urgent pod comes while all large GPUs are taken by pods that matter less": _preemption,
    "three trainings again, and an autoscaler that may add a node": _growth,
}
"""By what is announced, in the order in which they are played."""


async def notebooks(stage: Stage) -> None:
    """People who come and go: a small pod every few seconds, until cancelled."""
    keys: list[ObjectKey] = []
    while True:
        keys = [key for key in keys if not stage.are_over(key)]
        if len(keys) < _NOTEBOOKS:
            keys.append(await stage.pod(PEOPLE, "notebook", "gpu", (15, 40)))
        await stage.pause(stage.chance.randint(2, 6))


async def play(stage: Stage, tell: Callable[[str], None], rounds: Iterable[object]) -> None:
    """Play all scenes in each round; each is announced."""
    for _ in rounds:
        for number, (title, scene) in enumerate(SCENES.items(), start=1):
            tell(f"== {number} of {len(SCENES)}: {title}")
            await scene(stage)
            await stage.pause(3)


MANIFESTS: Final = Path(__file__).with_name("cluster.yaml")
"""The cluster in which the demo begins."""

_TIMEOUT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_CALLER: Final = "the demo's autoscaler"
"""Whom the console says sessions to be of."""


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo: actors that play before a service.

    Attributes:
        seed: decides which pods come, when, and how long they run.
        speed: how many seconds of the demo go by in a second. The service has its own pace.
        rounds: how often all scenes are played; 0: for ever.
    """

    seed: int
    speed: float = 1.0
    rounds: int = 0

    async def perform(self, api: MemoryApi, http: httpx.AsyncClient, tell: Callable[[str], None]) -> None:
        """Play the scenes. Raises ExceptionGroup of httpx.TransportError or UnreachableError: the service has gone.

        Args:
            api: of the cluster that the service serves. Schedulers, kubelets and people are played; they follow it.
            http: a client whose base URL is the service's.
            tell: hears what happens, line by line.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()

        def say(line: str) -> None:
            tell(f"{loop.time() - began:6.1f} s  {line}")

        def say_of(pod: ObjectKey, text: str) -> None:
            if pod.namespace != PEOPLE:
                say(f"{pod} {text}")

        async def pause(seconds: float) -> None:
            await asyncio.sleep(seconds / self.speed)

        async with asyncio.TaskGroup() as tasks:
            scheduler = Scheduler(api, Calls(http), say_of)
            workloads = Workloads(api, tasks, pause, say_of)
            autoscaler = Autoscaler(api, AsyncAutoscalerClient(http), scheduler, pause, say)
            for each in (scheduler, workloads):
                api.follow(each)
            people, script = (
                Stage(workloads, autoscaler, random.Random(f"{self.seed} {part}"), pause)  # noqa: S311 - no secret
                for part in ("people", "script")
            )
            beside = [tasks.create_task(each) for each in (scheduler.run(), autoscaler.run(), notebooks(people))]
            await play(script, say, range(self.rounds) if self.rounds else count())
            for task in beside:
                task.cancel()


@asynccontextmanager
async def performed(demo: Demo, api: MemoryApi, url: str, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Within the context, a demo is played before the service at a URL, from the time that it is ready."""
    task = asyncio.create_task(_from_first_to_last_answer(demo, api, url, tell))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _from_first_to_last_answer(demo: Demo, api: MemoryApi, url: str, tell: Callable[[str], None]) -> None:
    headers = {"User-Agent": _CALLER}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
        while not await _is_ready(http):  # noqa: ASYNC110 - the service is asked as a readiness probe asks it
            await asyncio.sleep(_LOOK_SECONDS)
        tell(f"Open {url}/ - Waiting shows why pods wait, Decisions what the scheduler was answered, Autoscaler which")
        pace = "" if demo.speed == 1 else f", {demo.speed:g} times as fast"
        tell(f"new nodes would help. Seed {demo.seed}{pace}; Ctrl-C ends the demo.")
        try:
            await demo.perform(api, http, tell)
        except* (httpx.TransportError, UnreachableError):
            tell("the service answers no more: the demo ends")


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("readyz")).is_success
    except httpx.TransportError:
        return False
