"""The assembly joins features: each background task has its turn, and helps those that come after it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TypeVar

from extender import answers, framework, plugins
from extender.answers.observe.problems import ProblemsKeeper
from extender.config.settings import (
    AdmissionCheckSettings,
    ControllerSettings,
    SchedulingGateSettings,
    Settings,
    UsageSettings,
)
from extender.faces.assembly import Surroundings, make_extender
from extender.framework.task import BackgroundTask
from extender.kube.api import ObjectKey
from extender.tools.offload import at_once
from tests.kit.clusters import Cluster, claim, device_class, local_slice, node, pod, request, solver

T = TypeVar("T")

TURNS = [
    *("Rescan", "BindingTimeout", "OrphanCollector", "UnknownWrites", "AbandonedClaims"),
    *("Unserved", "PodConditions", "LostClaims"),
    *("QuotaStatus", "ResourceClasses", "PoolRequests"),
    *("Deallocator", "ControllerReleases", "ControllerWaits", "SchedulingContexts"),
    *("Gangs", "GangsInPart", "SchedulerEvictions", "KeptOfBound", "Preemptor"),
    *("Requeue", "GateLifter", "AdmissionChecks", "PinnedPods", "ImmediateAllocation", "SecondOpinions"),
    *("HistoryKeeper", "StatesKeeper", "SizesKeeper", "UsageKeeper", "ProblemsKeeper", "PiecesKeeper", "PastReader"),
]

CONTROLLER = ControllerSettings(name="licenses.example.com", transport="PodSchedulingContext")


def test_each_background_task_has_its_turn_and_comes_before_those_that_it_may_help() -> None:
    settings = Settings(controllers=[CONTROLLER], usage=UsageSettings(prometheus="http://prometheus.example.com"))
    on = {
        "scheduling_gates": SchedulingGateSettings(enabled=True),
        "admission_checks": AdmissionCheckSettings(enabled=True),
    }
    service = Cluster.of().service(settings.model_copy(update=on))
    assert [type(task).__name__ for task in service.background.tasks] == TURNS


def test_no_background_task_is_left_out() -> None:
    for room in (answers, framework, plugins):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    assert {each.__name__ for each in _kinds(BackgroundTask) if each.__module__.startswith("extender.")} == set(TURNS)


def _kinds(of: type[BackgroundTask]) -> Iterator[type[BackgroundTask]]:
    """All classes that derive from a class and have no class of their own below them."""
    for each in of.__subclasses__():
        below = list(_kinds(each))
        yield from below or [each]


async def test_what_nobody_has_asked_for_takes_no_turn_of_a_verb_s_search() -> None:
    async def for_verbs(work: Callable[[], T]) -> T:
        raise AssertionError(work)

    slices = local_slice("a"), local_slice("gone")
    cluster = Cluster.of(device_class(), node("a"), *slices, claim("c", request(count=2)), pod("p", "c"))
    around = Surroundings(in_background=at_once)
    extender = make_extender(cluster.api, cluster.state, solver(), Settings(), around=around, off_loop=for_verbs)
    found = await extender.explanations.cause(cluster.state.snapshot.pods[ObjectKey("ns", "p")])
    assert found.line
    (problems,) = (each for each in extender.service.background.tasks if isinstance(each, ProblemsKeeper))
    await problems.tick()
    assert extender.overview.problems.known
