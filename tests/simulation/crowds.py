"""Crowds: pods that come at one moment and want the same few devices, so that what is done for them meets."""

from typing import Final

from tests.corpus.chance import Draw
from tests.corpus.machines import EXTENDED
from tests.kit.clusters import Object, claim, pod

_WORDS: Final = "dra-extender.dev"
_PRIORITIES: Final = (0, 10, 1000)


def crowd(draw: Draw, name: str, has: frozenset[str], place: int) -> list[Object]:
    """Pods of namespace "ns" with a device each, and their claims.

    Args:
        draw: decides how many there are.
        name: how their names begin.
        has: the capabilities of the history.
        place: of the crowd in its history. Where pods are evicted, later crowds are more important.
    """
    priority = _PRIORITIES[min(place, 2)] if "preemption" in has else 0
    size, is_gang = draw.number(3, 6), "gangs" in has and draw(0.6)
    found: list[Object] = []
    for number in range(size):
        own = f"{name}{number}"
        if "extended resources" in has and not is_gang and draw(0.5):
            found.append(_pod(own, priority, resources={EXTENDED: "1"}))
            continue
        shared = f"{name}0-c" if "shared" in has and not is_gang and number == 1 else f"{own}-c"
        found.append(_pod(own, priority, shared))
        if shared == f"{own}-c":
            found.append(claim(shared))
    if is_gang:
        for each in found:
            if each["kind"] == "Pod":
                said = {f"{_WORDS}/group": name, f"{_WORDS}/group-size": str(size)}
                each["metadata"]["annotations"] = said
    return found


def _pod(name: str, priority: int, *claims: str, resources: dict[str, str] | None = None) -> Object:
    made = pod(name, *claims, priority=priority, labels={"app": "web"}, resources=resources)
    made["spec"]["schedulerName"] = "dra-scheduler"
    return made
