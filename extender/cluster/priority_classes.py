"""Priority classes: the priority and the preemption policy that an API server gives a new pod.

Source: the admission plugin Priority of Kubernetes 1.37. Unlike that plugin, `PriorityClasses.admitted` leaves a pod as
it is that names no class while no class is the default: its ``priority`` counts as it is written.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocator import InvalidObjectError
from allocator.tools import Fields, ObjectReader, hint, shown
from extender.kube.api import Api, ApiError, OutcomeUnknownError
from extender.kube.resources import PRIORITY_CLASSES

_PREEMPTS: Final = "PreemptLowerPriority"
_POLICIES: Final = (_PREEMPTS, "Never")
_SYSTEM: Final = "system-"
_HIGHEST: Final = 1_000_000_000
"""Of a class that a user defines."""
_INT32: Final = 2**31

CLASS_NAME: Final = "priorityClassName"
"""Field of a pod's spec."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass.

    Attributes:
        policy: the ``preemptionPolicy`` of its pods.
        is_default: pods that name no class get it.
    """

    name: str
    value: int = 0
    policy: str = _PREEMPTS
    is_default: bool = False

    @property
    def preempts(self) -> bool:
        """Whether its pods may have others evicted."""
        return self.policy == _PREEMPTS


_NONE: Final = PriorityClass("")

_BUILT_IN: Final[Mapping[str, PriorityClass]] = {
    each.name: each
    for each in (
        PriorityClass("system-cluster-critical", 2_000_000_000),
        PriorityClass("system-node-critical", 2_000_001_000),
    )
}
"""An API server makes them when it starts."""


def parse_priority_class(obj: Mapping[str, object]) -> PriorityClass:
    """A scheduling.k8s.io/v1 PriorityClass.

    Raises:
        InvalidObjectError: all fields with a wrong type or value.
    """
    kind = PRIORITY_CLASSES
    reader = ObjectReader(kind.kind, obj, kind.api_versions())
    top, name = reader.top, reader.name
    found = PriorityClass(
        name, top.integer("value"), top.text("preemptionPolicy") or _PREEMPTS, is_default=top.flag("globalDefault")
    )
    if found.policy not in _POLICIES:
        top.problem("preemptionPolicy", f"{shown(found.policy)} is none of {', '.join(_POLICIES)}")
    if name.startswith(_SYSTEM):
        built_in = _BUILT_IN.get(name)
        if built_in is None:
            reader.metadata.problem("name", f"names that begin with {_SYSTEM} are those of Kubernetes")
        elif (built_in.value, built_in.is_default) != (found.value, found.is_default):
            top.problem("value", f"class {name} of Kubernetes has value {built_in.value} and is not the default")
    elif not -_INT32 <= found.value <= _HIGHEST:
        top.problem("value", f"{found.value} is not from {-_INT32} to {_HIGHEST}")
    reader.finish()
    return found


class PriorityClasses:
    """The priority classes of a cluster, with those of Kubernetes itself.

    Args:
        classes: those that are known.
        unread: why there may be others; empty if there are no others.

    Attributes:
        default: what a pod gets that names no class: of several defaults, the one with the lowest value; without a
            default, priority 0.
        unread: see above.
    """

    def __init__(self, classes: Iterable[PriorityClass] = (), unread: str = "") -> None:
        self._by_name = {**_BUILT_IN, **{each.name: each for each in classes}}
        defaults = (each for each in self._by_name.values() if each.is_default)
        self.default = min(defaults, key=lambda each: each.value, default=_NONE)
        self.unread = unread

    def named(self, name: str) -> PriorityClass | str:
        """The class of that name; the default for the empty name. A text: there is no such class."""
        if not name:
            return self.default
        found = self._by_name.get(name)
        if found is None and self.unread:
            return f"PriorityClass {name} can't be read: {self.unread}"
        return f"there is no PriorityClass {name}{hint(name, self._by_name)}" if found is None else found

    def admitted(self, spec: Fields) -> dict[str, Any]:
        """The spec of a new pod, with what its class says. What an API server refuses is noted."""
        found = self.named(spec.text(CLASS_NAME))
        if isinstance(found, str):
            spec.problem(CLASS_NAME, found)
        if isinstance(found, str) or found is _NONE:
            return dict(spec.data)
        _compare(spec, "priority", found.name, found.value)
        _compare(spec, "preemptionPolicy", found.name, found.policy)
        new = {CLASS_NAME: found.name, "priority": found.value, "preemptionPolicy": found.policy}
        return {**spec.data, **new}


def _compare(spec: Fields, field: str, name: str, of_class: object) -> None:
    """Note a value in a spec that is not that of the class."""
    if spec.has(field) and spec.data[field] != of_class:
        spec.problem(field, f"{shown(spec.data[field])} is not {of_class}, as PriorityClass {name} says: leave it out")


ONLY_BUILT_IN: Final = PriorityClasses()

_SECONDS: Final = 5.0
"""The longest wait for the classes."""


async def read_priority_classes(api: Api) -> PriorityClasses:
    """The classes that an API server has: its first page, which is bounded. Why they can't be read is not an error."""
    try:
        async with asyncio.timeout(_SECONDS):
            raw = await api.select(PRIORITY_CLASSES, "", {})
    except (ApiError, OutcomeUnknownError) as error:
        return PriorityClasses(unread=str(error))
    except TimeoutError:
        return PriorityClasses(unread=f"no answer within {_SECONDS:g} s")
    named = {"apiVersion": PRIORITY_CLASSES.api_versions()[0], "kind": PRIORITY_CLASSES.kind}
    try:
        return PriorityClasses([parse_priority_class({**each, **named}) for each in raw])
    except InvalidObjectError as error:
        return PriorityClasses(unread=str(error))
