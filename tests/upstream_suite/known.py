"""What can't be compared, and why."""

from collections.abc import Mapping
from typing import Final

PACKAGES: Final = ("default", "ga", "api", "all", "")
"""Packages of test/integration/dra; the last one is that package itself."""

SHORT: Final = (
    "AdminAccess",
    "CompatibilityGroups",
    "DRANodeAllocatableResources",
    "DerivedAttributes",
    "ExplicitExtendedResource",
    "ImplicitExtendedResource",
    "InvalidResourceSlices",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PodGroup",
    "PrioritizedList",
    "PrioritizedListScoring",
)
"""Sub-tests of the package all that need a scheduler and take seconds."""

INCOMPARABLE: Final[Mapping[str, str]] = {
    "FilterTimeout/enabled": "it expects that the search takes longer than 10 ms; ours ends before",
    "PodGroup/incompatible-node-selectors": "dra-extender refuses the group with its first pod, so kube-scheduler asks "
    "nothing about the second one, whose reason is compared",
}
"""By the end of the name of a sub-test."""


def why_incomparable(name: str) -> str:
    """The reason why a test says nothing about dra-extender; empty if it does."""
    return next((reason for end, reason in INCOMPARABLE.items() if name.endswith(f"/{end}")), "")
