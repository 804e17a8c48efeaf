"""The owner of an object that is its controller: what makes the object again after it is deleted."""

from dataclasses import dataclass

from allocator.tools import Fields


@dataclass(frozen=True, slots=True)
class Owner:
    """The entry of ``metadata.ownerReferences`` whose ``controller`` is true."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def read_controller(metadata: Fields) -> Owner | None:
    """The controller of an object; None if the object has none."""
    for owner in metadata.children("ownerReferences"):
        if owner.flag("controller"):
            return Owner(owner.text("kind"), owner.text("name"))
    return None
