"""What a pod says about its gang: the pods that get devices all or none.

A pod of a plain scheduler names its gang by annotations. The annotations say "group", as Kubernetes does.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from allocator.tools import shown

GROUP: Final = "dra-extender.dev/group"
"""Annotation of a pod: the name of its gang. Pods of one namespace and one name are one gang."""

GROUP_SIZE: Final = "dra-extender.dev/group-size"
"""Annotation of a pod: the number of pods that get devices together."""

GROUP_TOPOLOGY: Final = "dra-extender.dev/group-topology"
"""Annotation of a pod: a label of nodes or an attribute of devices; the gang shares its value, if possible."""

MOST_MEMBERS: Final = 1024
"""The largest size of a gang."""

LONGEST_NAME: Final = 253
"""The most characters of a gang's name: reasons hold it. A PodGroup's name is no longer."""


class GangKey(NamedTuple):
    """Names a gang: a PodGroup, or a group of annotations. One namespace may have both under one name."""

    namespace: str
    name: str
    is_pod_group: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Membership(NamedTuple):
    """What a pod says about its gang.

    Attributes:
        name: of the gang.
        size: the number of pods that get devices together; a PodGroup says it itself.
        topology: what the nodes or devices of the gang share, if possible; empty: nothing. A PodGroup says it itself.
        is_pod_group: the gang is a PodGroup.
        problem: why the annotations cannot be used; empty if they can.
    """

    name: str
    size: int = 1
    topology: str = ""
    problem: str = ""
    is_pod_group: bool = False


def read_membership(annotations: Mapping[str, str], pod_group: str) -> Membership | None:
    """The gang that a pod names; None if there is none.

    Args:
        annotations: of the pod.
        pod_group: the PodGroup that its spec names, which goes before annotations; empty if there is none.
    """
    if pod_group:
        return Membership(pod_group, is_pod_group=True)
    if GROUP not in annotations and GROUP_SIZE not in annotations:
        return None
    name, size = annotations.get(GROUP, ""), annotations.get(GROUP_SIZE)
    if not name:
        return Membership("", problem=f"annotation {GROUP} of the pod: it has no name, but {GROUP_SIZE} is set")
    if len(name) > LONGEST_NAME:
        text = f"annotation {GROUP} of the pod: {shown(name)} is longer than {LONGEST_NAME} characters"
        return Membership("", problem=text)
    if size is None:
        return Membership(name, problem=f"annotation {GROUP_SIZE} of the pod: it is missing, but {GROUP} is set")
    if not (
        size.isascii() and size.isdigit() and len(size) <= len(str(MOST_MEMBERS)) and 1 <= int(size) <= MOST_MEMBERS
    ):
        text = f"annotation {GROUP_SIZE} of the pod: {shown(size)} is not a number from 1 to {MOST_MEMBERS}"
        return Membership(name, problem=text)
    return Membership(name, int(size), annotations.get(GROUP_TOPOLOGY, ""))
