"""Stand-ins: a claim that is allocated without a pod is decided as the claim of a pod that does not exist."""

from typing import Final

from allocator import Claim, Toleration
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import CORDON, NodeRequirements, Pod, PodClaim

_LOWEST: Final = -(2**31)
"""Devices that are kept for nominated pods stay theirs, whatever their priority is."""


_ANY_TAINT: Final = NodeRequirements(tolerations=(Toleration("", "Exists"),))


def is_open(node: NodeObject) -> bool:
    """Whether a claim without a pod may be allocated for a node: the node is not cordoned. Taints do not count."""
    return CORDON not in node.taints[:1]


def stand_in(claim: Claim) -> Pod:
    """A pod that needs nothing but a claim; it has the name and the uid of the claim."""
    return Pod(
        claim.namespace,
        claim.name,
        claim.uid,
        priority=_LOWEST,
        claims=(PodClaim(claim.name, claim.name),),
        requirements=_ANY_TAINT,
    )
