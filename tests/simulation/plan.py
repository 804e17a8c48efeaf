"""The plan of a history: what there is at first, what happens when, and which faults last from when to when.

A plan comes from its seed alone. Parts of it can be left out, and the rest happens as before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from tests.corpus.chance import Draw
from tests.corpus.waiting import party
from tests.corpus.worlds import NEEDED, world
from tests.kit.clusters import Object
from tests.simulation.crowds import crowd
from tests.simulation.link import NETWORK_FAULTS

CAPABILITIES: Final = (
    "extended resources",
    "gangs",
    "quota",
    "negotiated",
    "preemption",
    "immediate",
    "pinned",
    "partitions",
    "capacity",
    "alternatives",
    "taints",
    "binding conditions",
    "optional",
    "shared",
    "network",
    "resource classes",
    "resource quotas",
    "pod groups",
)
"""What the histories mix, by the names of `tests.corpus.worlds.FEATURES`."""

CRASH, RESTART, RELIST, CONTROLLER, SKEW = (
    "crash",
    "rolling restart",
    "expired history",
    "controller away",
    "clock skew",
)
CRASH_AT_WRITE: Final = "crash at a write"
"""A replica ends when its next write of some kind has been done, before it hears of that."""

MADE_AGAIN_WHILE_BOUND: Final = "a pod is made again while it is bound"
FAULTS: Final = (*NETWORK_FAULTS, CRASH, RESTART, RELIST, CONTROLLER, SKEW)

PAIRS: Final = tuple(combinations(CAPABILITIES, 2))
_GROUPS: Final = 6
_BLOCKS: Final = tuple(combinations(range(_GROUPS), 2))
CYCLE: Final = len(_BLOCKS) * len(FAULTS)
"""So many successive seeds, from a multiple of it, have each pair of capabilities with each fault: the capabilities are
put into groups, and each two groups meet each fault. The next cycle has other groups."""

REPORTING: Final = 0.25
"""The share of the histories in which the service does what only tells people something."""

CALM_SHARE: Final = 0.125
CALM_SECONDS: Final = 900.0
"""A share of the histories end with a quarter of an hour in which nothing happens."""

SECONDS: Final = 120.0
"""The time in which things happen."""

_MORE: Final = ("hen", "ibis", "jay", "kite", "lark", "mole", "newt", "orca")
_SPARE: Final = frozenset({"namespaces", "plain"})
"""What most histories have besides."""

HAPPENINGS: Final = (
    *("a pod is deleted", "a pod is deleted", "pods end", "pods end", "pods end"),
    *("many pods end", "many pods end", "a pod is made again", "a pod is made again"),
    *("a driver publishes", "a node is cordoned", "a node leaves", "a taint comes", "taints go", "a quota is edited"),
)
CALM: Final = ("pods end", "many pods end")
"""What happens in histories in which nobody takes what a pod was promised."""

_CROWDS: Final = ("ant-hill", "beehive", "covey", "drove")


@dataclass(frozen=True)
class Step:
    """Something that happens once.

    Attributes:
        at: seconds since the start.
        what: one of `HAPPENINGS`, a fault that needs no span, or empty if only objects come.
        number: tells steps of a plan apart.
        objects: that come.
    """

    at: float
    what: str
    number: int
    objects: tuple[Object, ...] = ()

    def __str__(self) -> str:
        came = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in self.objects)
        return f"{self.at:6.1f} s  {self.what}{came and f'come: {came}'}"


@dataclass(frozen=True)
class Span:
    """A fault that lasts.

    Attributes:
        replica: the number of the replica that it befalls.
    """

    begins: float
    ends: float
    fault: str
    replica: int

    def __str__(self) -> str:
        return f"{self.begins:6.1f} s  {self.fault} of replica {self.replica} until {self.ends:.1f} s"


@dataclass(frozen=True)
class Plan:
    """A history before it happens.

    Attributes:
        seed: of all draws.
        has: the capabilities that it mixes.
        faults: what goes wrong in it.
        settings: of the service.
        objects: what there is at first.
        steps: in the order of time.
        spans: faults that last.
        replicas: how many there are.
        hears: whether events of others move the scheduler's pods.
        seconds: the time in which things happen.
        calm: seconds after the end in which nothing happens.
        reports: whether the service does what only tells people something, too. It takes a fifth of the processor time.
    """

    seed: int
    has: frozenset[str]
    faults: frozenset[str]
    settings: dict[str, Any]
    objects: tuple[Object, ...]
    steps: tuple[Step, ...]
    spans: tuple[Span, ...]
    replicas: int
    hears: bool
    seconds: float = SECONDS
    calm: float = 0.0
    reports: bool = True

    def __str__(self) -> str:
        there = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in self.objects)
        head = [f"seed {self.seed}: {self.replicas} replicas, {', '.join(sorted(self.has))}", f"at first: {there}"]
        moments: list[Step | Span] = [*self.steps, *self.spans]
        return "\n".join([*head, *map(str, sorted(moments, key=_when))])


def _when(each: Step | Span) -> float:
    return each.at if isinstance(each, Step) else each.begins


def wide_plan(seed: int) -> Plan:
    """The plan of a wide history. The seeds of a cycle go through all pairs of capabilities with all faults."""
    draw = Draw(f"history {seed}")
    cycle, place = divmod(seed, CYCLE)
    order, fault = Draw(f"cycle {cycle}").order(CAPABILITIES), FAULTS[place % len(FAULTS)]
    both = {each for group in _BLOCKS[place % len(_BLOCKS)] for each in order[group::_GROUPS]}
    chosen = {*both, *draw.some(CAPABILITIES, 0, 1), *(each for each in _SPARE if draw(0.7))}
    has = frozenset(chosen.union(*(NEEDED.get(each, set()) for each in chosen)))
    faults = frozenset({fault, *draw.some(FAULTS, 0, 2)} if draw(0.85) else {fault})
    made = world(seed, has)
    replicas = draw.of([1, 2, 2, 3]) if faults <= {SKEW} or draw(0.5) else draw.of([1, 2])
    return Plan(
        seed=seed,
        has=has,
        faults=faults,
        settings=_settings(draw, made.settings, has),
        objects=tuple(made.objects),
        steps=tuple(sorted(_steps(draw, made.comes, has, faults), key=lambda step: step.at)),
        spans=tuple(_spans(draw, faults, replicas)),
        replicas=replicas,
        hears=draw(0.6),
        reports=draw(REPORTING),
        calm=CALM_SECONDS if draw(CALM_SHARE) else 0.0,
    )


def _settings(draw: Draw, settings: dict[str, Any], has: frozenset[str]) -> dict[str, Any]:
    """Those of the corpus, for one scheduler, with limits that no search reaches."""
    scheduling = {
        **settings["scheduling"],
        "schedulerNames": ["dra-scheduler"],
        "preemption": "preemption" in has,
        "maxSteps": 100_000,
        "bestNodes": draw.of([None, None, 0, 1]),
    }
    scheduling.pop("shapes", None)
    limits = {"forPod": draw.of([1, 3, 32]), "ofNamespace": draw.of([2, 5, 120]), "forNamespace": 120}
    return {**settings, "scheduling": scheduling, "evictions": limits}


def _steps(draw: Draw, comes: list[list[Object]], has: frozenset[str], faults: frozenset[str]) -> Iterator[Step]:
    parties = [*comes, *(party(draw, name, has) for name in draw.some(_MORE, 3))]
    number = 0
    for each in parties:
        number += 1
        yield Step(draw.number(0, int(SECONDS * 10)) / 10, "", number, tuple(each))
    times = sorted(draw.number(0, int(SECONDS * 8)) / 10 for _ in range(draw.number(2, len(_CROWDS))))
    for place, (name, at) in enumerate(zip(_CROWDS, times, strict=False)):
        number += 1
        yield Step(at, "", number, tuple(crowd(draw, name, has, place)))
    happenings = CALM if draw(0.3) else HAPPENINGS
    for _ in range(draw.number(4, 14)):
        number += 1
        yield Step(draw.number(0, int(SECONDS * 10)) / 10, draw.of(happenings), number)
    for fault in sorted(faults & {CRASH, RESTART, RELIST, CONTROLLER}):
        for _ in range(draw.number(1, 4)):
            number += 1
            yield Step(draw.number(0, int(SECONDS * 1000)) / 1000, fault, number)


def _spans(draw: Draw, faults: frozenset[str], replicas: int) -> Iterator[Span]:
    for fault in sorted(faults & set(NETWORK_FAULTS)):
        for _ in range(draw.number(1, 3)):
            begins = draw.number(0, int(SECONDS * 10)) / 10
            yield Span(begins, begins + draw.of([2.0, 5.0, 15.0, 40.0]), fault, draw.number(0, replicas - 1))
