"""The order in which claims give back their devices, as a watch shows it."""

from collections.abc import Iterable

from extender.kube.api import Event, RawObject
from extender.kube.resources import CLAIMS, Resource


class Freed:
    """The names of the claims that have changed and have no devices then; follows an API server in memory."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in all objects of a kind: what was there before does not matter."""
        del resource, objects
        return at >= 0

    def apply(self, event: Event) -> None:
        """Take in an event."""
        if event.resource is CLAIMS and "allocation" not in event.object.get("status", {}):
            self.names.append(event.object["metadata"]["name"])
