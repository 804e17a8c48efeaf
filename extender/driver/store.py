"""What a controller has allocated, in a file: replaced as a whole, so that a crash leaves the old or the new one."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_MOST_RELEASED: Final = 10_000
"""Released claims that are remembered, the latest: an allocation that comes late is refused."""


@dataclass(slots=True)
class Store:
    """Allocations and releases.

    Attributes:
        path: the file.
        allocated: by uid of the claim: attempt, claim, node and allocation, as JSON. While a claim is being allocated,
            and if that did not end, its entry has no allocation.
        released: by uid of the claim, the attempt of its latest release.
    """

    path: Path
    allocated: dict[str, dict[str, Any]] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> "Store":
        """The store in a file, empty if there is no file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a file of a store.
        """
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(path)
        if not isinstance(found, dict) or not all(isinstance(found.get(k), dict) for k in ("allocated", "released")):
            raise ValueError(f"{path} is not a file of a store")
        return cls(path, found["allocated"], found["released"])

    def allocate(self, uid: str, entry: Mapping[str, Any]) -> None:
        """Keep an allocation, or that one was begun."""
        self.allocated[uid] = dict(entry)
        self._save()

    def release(self, uid: str, attempt: int) -> None:
        """Forget an allocation, and keep the attempt of the release."""
        self.allocated.pop(uid, None)
        self.released.pop(uid, None)
        self.released[uid] = attempt
        while len(self.released) > _MOST_RELEASED:
            del self.released[next(iter(self.released))]
        self._save()

    def _save(self) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w") as file:
            json.dump({"allocated": self.allocated, "released": self.released}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
