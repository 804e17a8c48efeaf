"""Stand-ins: a claim that is allocated without a pod is decided as the claim of a pod that does not exist."""

from typing import Final

from allocator import Claim
from extender.state.objects import Pod, PodClaim

_LOWEST: Final = -(2**31)
"""Devices that are kept for nominated pods stay theirs, whatever their priority is."""


def stand_in(claim: Claim) -> Pod:
    """A pod that needs nothing but a claim; it has the name and the uid of the claim."""
    return Pod(claim.namespace, claim.name, claim.uid, priority=_LOWEST, claims=(PodClaim(claim.name, claim.name),))
