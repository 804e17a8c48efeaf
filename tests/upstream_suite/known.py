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
"""By a part of the name of a sub-test."""

_NO_CLAIMS: Final = (
    "the plugin of 1.36 adds `no new claims to deallocate` after the reasons, and the test compares the whole text"
)
_STILL: Final = (
    "the plugin of 1.36 adds `still not schedulable` after the reasons, and the test compares the whole text"
)

INCOMPARABLE_IN: Final[Mapping[str, Mapping[str, str]]] = {
    "v1.36": {
        "InvalidResourceSlices/only-invalid-for-one-node": _STILL,
        "InvalidResourceSlices/invalid-for-all-nodes": _STILL,
        "PrioritizedList": _STILL,
        "GA/ExplicitExtendedResource": _NO_CLAIMS,
        "GA/ImplicitExtendedResource": _NO_CLAIMS,
        "DRANodeAllocatableResources": "1.36 has the feature in another form, which 1.37 has dropped",
    },
}
"""The same for one minor version."""


def why_incomparable(name: str, version: str) -> str:
    """The reason why a test says nothing about dra-extender; empty if it does.

    Args:
        name: of the test.
        version: of Kubernetes, as in v1.37.1.
    """
    known = {**INCOMPARABLE, **INCOMPARABLE_IN.get(version.rpartition(".")[0], {})}
    return next((reason for part, reason in known.items() if f"/{part}/" in f"{name}/"), "")
