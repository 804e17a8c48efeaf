"""The demo as a whole: who takes part in it, and how time passes there."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import httpx

from extender.client import AsyncAutoscalerClient, UnreachableError
from extender.faces.demo.autoscaler import Autoscaler
from extender.faces.demo.calls import Calls
from extender.faces.demo.scenes import PEOPLE, Stage, notebooks, play
from extender.faces.demo.scheduler import Scheduler
from extender.faces.demo.workloads import Workloads
from extender.kube.api import ObjectKey
from extender.lab.api import MemoryApi

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
