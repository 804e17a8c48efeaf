"""Who follows the API server in memory, as a watch would."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import Resource


class Follower(ABC):
    """Hears of each object that is there at first, and of each change from then on."""

    __slots__ = ()

    @abstractmethod
    def apply(self, event: Event) -> None:
        """Take in an event."""

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list of all objects, before any event."""
        del at
        for each in objects:
            self.apply(Event(EventType.ADDED, resource, each))
        return True
