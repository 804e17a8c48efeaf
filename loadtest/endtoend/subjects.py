"""What is compared: three ways to schedule pods with claims, each a scheduler with or without an extender."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extender.kube.api import RawObject
from loadtest.endtoend.workload import IDLE, IN_TREE, OURS, SubjectName
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.controllers import Licensing, serving_with
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import running_extender
from tests.kit.process import Process

CALLS_PER_SECOND: Final = 5000
"""That a client of the API server allows itself: its own limit is not to be what is measured. By default, 50."""

_IDLE: Final = (sys.executable, "-m", "loadtest.idle_extender")
_SCHEDULER_NAME: Final = "dra-scheduler"

Processes = Mapping[str, Process]
"""By what they are, which is the same for all subjects."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One way.

    Attributes:
        decides: knows which devices there are; else allocations mean nothing.
        running: it runs over a control plane, and asks these controllers, while this lasts, as these processes.
    """

    decides: bool
    running: Callable[[ControlPlane, Sequence[Licensing]], AbstractAsyncContextManager[Processes]]


def with_extender(text: str, url: str, kubeconfig: Path) -> RawObject:
    """The scheduler's configuration as we ship it.

    Args:
        text: the shipped file.
        url: of the extender.
        kubeconfig: the scheduler's own.
    """
    return unhurried(localize(text, url, kubeconfig))


def in_tree(kubeconfig: Path) -> RawObject:
    """The scheduler's own configuration, with its plugin for claims; every node is looked at, as with ours."""
    return unhurried(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "profiles": [{"schedulerName": _SCHEDULER_NAME, "percentageOfNodesToScore": 100}],
        }
    )


def unhurried(config: RawObject) -> RawObject:
    """A configuration whose client of the API server has a limit that nothing here reaches."""
    limits = {"qps": CALLS_PER_SECOND, "burst": CALLS_PER_SECOND}
    return config | {"clientConnection": config["clientConnection"] | limits}


@asynccontextmanager
async def _in_tree(plane: ControlPlane, _: Sequence[Licensing]) -> AsyncIterator[Processes]:
    async with scheduler(plane, in_tree(plane.kubeconfig(SCHEDULER)), ()) as process:
        yield {process.name: process}


@asynccontextmanager
async def _ours(plane: ControlPlane, controllers: Sequence[Licensing]) -> AsyncIterator[Processes]:
    serve = serving_with(plane, controllers)
    async with running_extender(plane, serve=serve) as extender, _asking(plane, extender.url) as process:
        yield {process.name: process, "extender": extender.process}


@asynccontextmanager
async def _idle(plane: ControlPlane, _: Sequence[Licensing]) -> AsyncIterator[Processes]:
    async with running_extender(plane, serve=_IDLE) as extender, _asking(plane, extender.url) as process:
        yield {process.name: process, "extender": extender.process}


@asynccontextmanager
async def _asking(plane: ControlPlane, url: str) -> AsyncIterator[Process]:
    text = SHIPPED.read_text()
    config = with_extender(text, url, plane.kubeconfig(SCHEDULER))
    async with scheduler(plane, config, shipped_flags(text)) as process:
        yield process


SUBJECTS: Final[Mapping[SubjectName, Subject]] = {
    IN_TREE: Subject(decides=True, running=_in_tree),
    OURS: Subject(decides=True, running=_ours),
    IDLE: Subject(decides=False, running=_idle),
}
