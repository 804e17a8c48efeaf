"""Claims from the answers to our writes, until the watch shows them.

A write is seen twice: in its answer, and in the watch. Equal versions are equal claims, so a claim is parsed once.
"""

from dataclasses import dataclass, field

from extender.kube.raw import Version
from extender.state.objects import ClaimObject


@dataclass(slots=True)
class MutationCache:
    """Claims by version. Beyond ``limit`` the oldest are dropped; a claim that is not here is parsed again."""

    limit: int = 1000
    _claims: dict[Version, ClaimObject] = field(default_factory=dict)

    def keep(self, version: Version, claim: ClaimObject) -> None:
        """Keep a claim until the watch shows it."""
        self._claims[version] = claim
        if len(self._claims) > self.limit:
            del self._claims[next(iter(self._claims))]

    def shown(self, version: Version | None) -> ClaimObject | None:
        """Remove and return the claim that the watch shows now, if it is known."""
        return None if version is None else self._claims.pop(version, None)

    def clear(self) -> None:
        """Forget all claims: a list shows the current ones."""
        self._claims.clear()

    def __len__(self) -> int:
        return len(self._claims)
