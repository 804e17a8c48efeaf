"""An allocation that is decided and that the watch has not shown yet."""

from dataclasses import dataclass
from typing import Final

from allocator import AllocationResult, ClaimSpec

NO_SPEC: Final = ClaimSpec()
"""The spec of a claim that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedAllocation:
    """A decided allocation whose write the watch has not shown yet.

    Attributes:
        spec: the spec of the claim. The claim may not exist yet.
        ends_at: revision of the claim from which on the watch shows the outcome of the write; None: not known yet.
    """

    claim_uid: str
    pod_uid: str
    allocation: AllocationResult
    ends_at: int | None = None
    spec: ClaimSpec = NO_SPEC
