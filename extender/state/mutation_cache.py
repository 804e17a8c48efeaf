"""Claims as the API server answered our writes with them, until the watch shows them.

A write is told twice: by its answer, and by the watch. What has the same version is the same, so it is read once.
"""

from dataclasses import dataclass, field

from extender.kube.raw import Version
from extender.state.objects import ClaimObject


@dataclass(slots=True)
class MutationCache:
    """Claims by version, each until it is shown. Bounded: of more than the limit the oldest are forgotten.

    Forgetting costs time and nothing else: what is not here is read again.
    """

    limit: int = 1000
    _claims: dict[Version, ClaimObject] = field(default_factory=dict)

    def keep(self, version: Version, claim: ClaimObject) -> None:
        """The watch is yet to show this."""
        self._claims[version] = claim
        if len(self._claims) > self.limit:
            del self._claims[next(iter(self._claims))]

    def shown(self, version: Version | None) -> ClaimObject | None:
        """What the watch shows now, if it is known; it is not kept any longer."""
        return None if version is None else self._claims.pop(version, None)

    def clear(self) -> None:
        """A list has come: it shows everything."""
        self._claims.clear()

    def __len__(self) -> int:
        return len(self._claims)
