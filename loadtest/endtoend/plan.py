"""Which runs there are, and in which order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from loadtest.endtoend.workload import ORDER, OURS, Devices, SubjectName, Workload

PODS_OF_A_NODE: Final = 110


class PlanError(Exception):
    """Runs that can't be done, and why."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be otherwise than workloads say; None: as they say.

    Attributes:
        subjects: of those that a workload has.
    """

    nodes: tuple[int, ...] | None = None
    pods: int | None = None
    repetitions: int | None = None
    subjects: tuple[SubjectName, ...] = ORDER


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster that runs need.

    Attributes:
        classes: names of device classes with their selectors.
    """

    nodes: int
    devices: Devices
    classes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One run.

    Attributes:
        name: of the workload.
        repetition: from 1.
    """

    name: str
    workload: Workload
    pods: int
    subject: SubjectName
    repetition: int
    repetitions: int

    def __str__(self) -> str:
        return f"{self.name}, {self.subject}, {self.repetition} of {self.repetitions}"


Plan = Mapping[Site, Sequence[Turn]]
"""The runs on each cluster, in order."""


@dataclass(frozen=True, slots=True)
class _Case:
    """The runs of one workload with one number of nodes and one of pods."""

    name: str
    workload: Workload
    nodes: int
    pods: int
    repetitions: int
    subjects: frozenset[SubjectName]

    @property
    def site(self) -> Site:
        return Site(self.nodes, self.workload.devices, tuple(sorted(self.workload.classes.items())))

    def turns(self, repetition: int) -> Iterator[Turn]:
        if repetition <= self.repetitions:
            for subject in ORDER:
                if subject in self.subjects:
                    yield Turn(self.name, self.workload, self.pods, subject, repetition, self.repetitions)


def plan(workloads: Mapping[str, Workload], chosen: Iterable[str], choice: Choice) -> Plan:
    """The runs of workloads: subject after subject, each workload, again and again: what drifts meets all of them.

    Where a workload is compared with its like that nothing disturbs, that one runs with as many nodes and pods.

    Args:
        workloads: by their names, also those that others are compared with.
        chosen: names of those that are to run.
        choice: what is otherwise than they say.

    Raises:
        PlanError: there are fewer devices or places than pods ask for, or nobody is to run a workload.
    """
    cases: dict[tuple[str, int, int], _Case] = {}
    for name in chosen:
        for case in _cases(name, workloads, choice):
            key = case.name, case.nodes, case.pods
            cases[key] = _both(cases[key], case) if key in cases else case
    found: dict[Site, list[_Case]] = {}
    for case in cases.values():
        _check_room(case)
        found.setdefault(case.site, []).append(case)
    return {site: list(_in_turn(cases)) for site, cases in found.items()}


def _cases(name: str, workloads: Mapping[str, Workload], choice: Choice) -> Iterator[_Case]:
    workload = workloads[name]
    subjects = frozenset(choice.subjects) & frozenset(workload.subjects)
    if not subjects:
        raise PlanError(f"{name}: it is for {', '.join(workload.subjects)}, not for {', '.join(choice.subjects)}")
    pods, repetitions = choice.pods or workload.pods, choice.repetitions or workload.repetitions
    for nodes in choice.nodes or workload.nodes:
        case = _Case(name, workload, nodes, pods, repetitions, subjects)
        if workload.undisturbed and OURS in subjects:
            base = workload.undisturbed
            yield replace(case, name=base, workload=workloads[base], subjects=frozenset({OURS}))
        yield case


def _both(one: _Case, other: _Case) -> _Case:
    """The runs of two cases that differ at most in how often they run, and for whom."""
    repetitions = max(one.repetitions, other.repetitions)
    return replace(one, repetitions=repetitions, subjects=one.subjects | other.subjects)


def _in_turn(cases: Sequence[_Case]) -> Iterator[Turn]:
    for repetition in range(1, max(case.repetitions for case in cases) + 1):
        for case in cases:
            yield from case.turns(repetition)


def _check_room(case: _Case) -> None:
    """No pod waits for want of room: that is not what is measured."""
    workload, machine = case.workload, case.workload.devices.machine
    living = ceil(case.pods * workload.churn.living)
    shapes = [sum(wish.counts) for wish in workload.wishes]
    asked = sum(shapes[pod % len(shapes)] for pod in range(living)) if shapes else 0
    for what, wanted, there in (
        ("devices", asked, case.nodes * len(machine.names)),
        ("places for pods", living, case.nodes * PODS_OF_A_NODE),
    ):
        if wanted > there:
            raise PlanError(
                f"{case.name}: {living:,} pods need {wanted:,} {what}, and {case.nodes:,} nodes have {there:,}"
            )
