"""Narrow histories: few objects, all about one thing where two parts of the service meet, in half a minute.

A wide history has many things that happen, and rarely two of them at the one moment that matters. A narrow one has
little else than such moments. Each scene is drawn from its seed, and successive seeds go through what they are about.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.corpus.chance import Draw
from tests.corpus.machines import EXTENDED
from tests.kit.clusters import DRIVER, Object, claim, device_class, local_slice, node, pinned, pod
from tests.kit.objects.quotas import limited, quota
from tests.simulation.link import ADMISSION, CUT_WATCH, ERRORS, LATE_WATCH, LOST, PARTITION, SLOWNESS
from tests.simulation.plan import (
    CALM_SECONDS,
    CALM_SHARE,
    CRASH,
    CRASH_AT_WRITE,
    MADE_AGAIN_WHILE_BOUND,
    RELIST,
    REPORTING,
    Plan,
    Span,
    Step,
)

_SECONDS: Final = 30.0
_WORDS: Final = "dra-extender.dev"
_POLICIES: Final = ("fragmentation", "best-fit", "first-fit", "spread", "pack", "reserve")


@dataclass
class _Scene:
    """What a scene makes.

    Attributes:
        draw: decides.
        has: the capabilities.
        objects: what there is at first.
        replicas: how many there are.
        hears: whether events of others move the scheduler's pods; None: that is drawn.
    """

    draw: Draw
    has: set[str]
    objects: list[Object]
    replicas: int
    hears: bool | None = None
    steps: list[Step] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def comes(self, at: float, *objects: Object) -> None:
        """Objects come."""
        self.steps.append(Step(at, "", len(self.steps) + 1, objects))

    def happens(self, what: str, *times: float) -> None:
        """Something happens at some times."""
        for at in times:
            self.steps.append(Step(at, what, len(self.steps) + 1))

    def lasts(self, fault: str, begins: float, ends: float) -> None:
        """A fault befalls all replicas for a while."""
        self.spans += [Span(begins, ends, fault, replica) for replica in range(self.replicas)]

    def time(self, least: float, most: float) -> float:
        """A time between two others."""
        return self.draw.number(int(least * 1000), int(most * 1000)) / 1000


def scene_of(seed: int) -> Callable[[Draw], _Scene]:
    """The scene of a narrow history."""
    alike = SCENES[seed % len(SCENES)]
    return alike[Draw(f"scene {seed}").number(0, len(alike) - 1)]


def narrow_plan(seed: int) -> Plan:
    """The plan of a narrow history."""
    draw = Draw(f"narrow {seed}")
    scene = scene_of(seed)(draw)
    scheduling: dict[str, Any] = {
        "policy": draw.of(_POLICIES),
        "preemption": "preemption" in scene.has,
        "schedulerNames": ["dra-scheduler"],
        "bestNodes": draw.of([None, None, 0, 1]),
        "maxSteps": 100_000,
    }
    return Plan(
        seed=seed,
        has=frozenset(scene.has),
        faults=frozenset([each.fault for each in scene.spans] + [each.what for each in scene.steps if each.what]),
        settings={"scheduling": scheduling, "evictions": _CAPS, "controllers": []},
        objects=tuple(scene.objects),
        steps=tuple(sorted(scene.steps, key=lambda each: each.at)),
        spans=tuple(scene.spans),
        replicas=scene.replicas,
        hears=draw(0.6) if scene.hears is None else scene.hears,
        seconds=_SECONDS,
        reports=draw(REPORTING),
        calm=CALM_SECONDS if draw(CALM_SHARE) else 0.0,
    )


_CAPS: Final = {"forPod": 32, "ofNamespace": 120, "forNamespace": 120}


# --- scenes ---------------------------------------------------------------------------------------------------------


def _crowds_and_a_quota(draw: Draw) -> _Scene:
    """Pods that come at one moment want more devices than their quota has left."""
    most = draw.number(1, 3)
    objects = [*_nodes(draw.number(2, 3), 3), quota(limited(devices=most))]
    scene = _Scene(draw, {"quota"}, objects, draw.number(1, 3))
    for name in ("ant", "bee"):
        scene.comes(scene.time(1, 15), *_crowd(name, most + draw.number(1, 3)))
    scene.happens("many pods end", *(scene.time(8, 25) for _ in range(3)))
    if fault := draw.of([SLOWNESS, SLOWNESS, LATE_WATCH, ""]):
        scene.lasts(fault, 0.0, 20.0)
    return scene


def _gangs_and_a_quota(draw: Draw) -> _Scene:
    """Gangs come at one moment, and their quota suffices for one of them; other pods want the rest of it."""
    size = draw.number(2, 3)
    objects = [*_nodes(3, 3), quota(limited(devices=size + draw.number(0, size - 1)))]
    scene = _Scene(draw, {"quota", "gangs"}, objects, draw.number(1, 3))
    at = scene.time(1, 4)
    for name in ("ant", "bee"):
        scene.comes(at + scene.time(0, 0.1), *_crowd(name, size, gang=True))
    scene.comes(at + scene.time(0, 2), *_crowd("cat", draw.number(1, 2)))
    scene.happens("many pods end", *(scene.time(12, 25) for _ in range(2)))
    if draw(0.7):
        scene.lasts(ADMISSION, 0.0, 12.0)
    return scene


def _gangs_that_are_half_written(draw: Draw) -> _Scene:
    """What is kept for the pods of a gang is written while writes fail or take long."""
    objects = _nodes(3, 4)
    scene = _Scene(draw, {"gangs"}, objects, draw.number(1, 2))
    for name in ("ant", "bee", "cat"):
        scene.comes(scene.time(1, 12), *_crowd(name, draw.number(2, 4), gang=True))
    for fault in draw.some([ERRORS, LOST, SLOWNESS, ADMISSION], 1, 2):
        scene.lasts(fault, 0.0, 20.0)
    return scene


def _victims_that_are_not_needed(draw: Draw) -> _Scene:
    """Pods end while others are about to be evicted: nominations take seconds to be written."""
    objects = [*_nodes(2, 2), *_running("ab", 2)]
    scene = _Scene(draw, {"preemption"}, objects, draw.number(1, 2), hears=False)
    at = scene.time(1, 3)
    scene.comes(at, *_crowd("ant", draw.number(1, 2), priority=1000))
    scene.happens("pods end", at + scene.time(0.6, 1.5), at + scene.time(1, 4))
    scene.lasts(ADMISSION, 0.0, 25.0)
    if draw(0.3):
        scene.happens(CRASH_AT_WRITE, at)
    return scene


def _pods_that_wait_after_a_start(draw: Draw) -> _Scene:
    """The service starts anew while pods wait, and a driver adds devices, which moves no pod in any queue."""
    objects = [*_nodes(2, 1), *_running("ab", 1)]
    scene = _Scene(draw, set(), objects, 1, hears=False)
    scene.comes(scene.time(1, 3), *_crowd("ant", draw.number(2, 3)))
    scene.happens(CRASH, 6.0)
    scene.happens("a driver adds devices", scene.time(6, 12), scene.time(10, 28))
    return scene


def _changes_that_nobody_tells(draw: Draw) -> _Scene:
    """A replica is cut off, and the API server has forgotten what has changed meanwhile."""
    objects = [*_nodes(2, 2), *_running("a", 2)]
    scene = _Scene(draw, set(), objects, draw.number(1, 2))
    begins = scene.time(2, 6)
    scene.spans.append(Span(begins, begins + 12.0, PARTITION, draw.number(0, scene.replicas - 1)))
    scene.comes(begins + scene.time(0, 10), *_crowd("ant", 3))
    scene.happens("many pods end", begins + scene.time(0, 10))
    scene.happens(RELIST, begins + 11.0)
    if draw(0.5):
        scene.lasts(CUT_WATCH, 0.0, 20.0)
    return scene


def _claims_that_are_left(draw: Draw) -> _Scene:
    """A process ends while it makes claims for extended resources, and their pods find no node any more."""
    objects = [device_class(selectors=[_OURS], extended=EXTENDED), *_nodes(draw.number(1, 2), 2)[1:]]
    scene = _Scene(draw, {"extended resources"}, objects, 1)
    for name, at in (("ant", scene.time(1, 5)), ("bee", scene.time(5, 15))):
        scene.happens(CRASH_AT_WRITE, at)
        scene.comes(at + 0.001, *(_waiting(f"{name}{number}", resources={EXTENDED: "1"}) for number in range(2)))
        scene.happens("a node is cordoned", *(at + scene.time(0, 2) for _ in range(3)))
    return scene


def _pods_that_end_before_they_have_their_claims(draw: Draw) -> _Scene:
    """A process ends while it allocates the claims of pods that have a node already, and so do the pods."""
    scene = _Scene(draw, {"pinned"}, _nodes(2, 2), draw.number(1, 2))
    for name, at in (("ant", scene.time(1, 5)), ("bee", scene.time(10, 20))):
        scene.happens(CRASH_AT_WRITE, *[at] * 4)
        for number in range(2):
            own = f"{name}{number}-c"
            scene.comes(at + 0.001, _ours(pinned(f"{name}{number}", own, on=draw.of("ab"))), claim(own))
        scene.happens("a pod is deleted", *(at + scene.time(3, 9) for _ in range(3)))
    return scene


def _pods_that_are_made_again(draw: Draw) -> _Scene:
    """A pod is deleted and made again, with its name and its claims, while it is being bound."""
    scene = _Scene(draw, set(), _nodes(2, 3), draw.number(1, 2))
    for name in ("ant", "bee"):
        at = scene.time(1, 15)
        scene.happens(MADE_AGAIN_WHILE_BOUND, at, at)
        scene.comes(at + 0.001, *_crowd(name, draw.number(1, 3)))
    if draw(0.5):
        scene.lasts(SLOWNESS, 0.0, 20.0)
    return scene


def _pods_of_several_nodes_and_a_quota(draw: Draw) -> _Scene:
    """Pods that take a node each, and so other devices than the others, come at one moment: what they share is a quota.

    Each replica learns seconds late what the other one has allocated.
    """
    objects = [*_nodes(3, 3), quota(limited(devices=draw.number(1, 2)))]
    scene = _Scene(draw, {"quota"}, objects, draw.number(2, 3))
    for name in ("ant", "bee"):
        at = scene.time(1, 15)
        for on in "abc":
            scene.comes(at + scene.time(0, 0.3), *_crowd(f"{name}-{on}", 1, on=on))
    scene.happens("many pods end", *(scene.time(8, 25) for _ in range(3)))
    scene.lasts(LATE_WATCH, 0.0, 20.0)
    return scene


def _gangs_of_several_nodes_and_a_quota(draw: Draw) -> _Scene:
    """Gangs that take a node each come one after the other, and their quota suffices for one of them.

    It takes seconds until a replica that is asked about one gang sees what another replica keeps for the other gang.
    """
    objects = [*_nodes(3, 3), quota(limited(devices=draw.number(2, 3)))]
    scene = _Scene(draw, {"quota", "gangs"}, objects, draw.number(2, 3), hears=False)
    at = scene.time(1, 4)
    for name, on in (("ant", "a"), ("bee", "b"), ("cat", "c")):
        scene.comes(at, *_crowd(name, 2, gang=True, on=on))
        at += scene.time(0.1, 2.0)
    scene.happens("many pods end", scene.time(18, 25))
    scene.lasts(ADMISSION, 0.0, 30.0)
    return scene


def _devices_come_before_victims_go(draw: Draw) -> _Scene:
    """A driver adds devices while it takes seconds to nominate a pod, and then to wake it."""
    objects = [*_nodes(2, 2), *_running("ab", 2)]
    scene = _Scene(draw, {"preemption"}, objects, draw.number(1, 2), hears=False)
    at = scene.time(1, 3)
    scene.comes(at, *_crowd("ant", 1, priority=1000))
    scene.happens("a driver adds devices", at + scene.time(0.8, 2.5))
    scene.lasts(ADMISSION, 0.0, 25.0)
    return scene


SCENES: Final[Sequence[Sequence[Callable[[Draw], _Scene]]]] = (
    (_crowds_and_a_quota, _pods_of_several_nodes_and_a_quota),
    (_gangs_and_a_quota, _gangs_of_several_nodes_and_a_quota),
    (_gangs_that_are_half_written,),
    (_victims_that_are_not_needed, _devices_come_before_victims_go),
    (_pods_that_wait_after_a_start,),
    (_changes_that_nobody_tells,),
    (_claims_that_are_left, _pods_that_end_before_they_have_their_claims),
    (_pods_that_are_made_again,),
)
"""Those of one line are about the same thing."""


# --- objects --------------------------------------------------------------------------------------------------------

_OURS: Final = f'device.driver == "{DRIVER}"'


def _nodes(number: int, devices: int) -> list[Object]:
    """The device class, and nodes "a", "b", ... with some devices each."""
    return [device_class(selectors=[_OURS]), *_machines("abc"[:number], devices)]


def _machines(names: Iterable[str], devices: int) -> Iterator[Object]:
    for name in names:
        yield node(name)
        yield local_slice(name, devices)


def _running(nodes: str, devices: int) -> Iterator[Object]:
    """Pods that have all devices of some nodes, one each."""
    for on in nodes:
        for number in range(devices):
            name = f"{on}{number}"
            yield pod(name, f"{name}-c", on=on)
            yield claim(f"{name}-c", allocated=[f"{on}/gpu-{number}"], at=on, users=[name])


def _crowd(name: str, size: int, *, gang: bool = False, priority: int = 0, on: str = "") -> Iterator[Object]:
    """Pods with a device each; they take one node alone, if it is named."""
    said = {f"{_WORDS}/group": name, f"{_WORDS}/group-size": str(size)} if gang else {}
    for number in range(size):
        yield _waiting(f"{name}{number}", f"{name}{number}-c", priority=priority, said=said, selects=on)
        yield claim(f"{name}{number}-c")


def _waiting(name: str, *claims: str, said: dict[str, str] | None = None, selects: str = "", **more: Any) -> Object:
    made = pod(name, *claims, **more)
    if selects:
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": selects}
    made["metadata"]["annotations"] = said or {}
    return _ours(made)


def _ours(made: Object) -> Object:
    """A pod of our scheduler."""
    made["spec"]["schedulerName"] = "dra-scheduler"
    return made
