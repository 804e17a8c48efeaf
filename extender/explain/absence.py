"""Why there is no explanation of a pod: the pod does not exist, or it needs no devices."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from allocator.tools import did_you_mean, nearest
from extender.kube.api import ObjectKey

_MOST_COMPARED: Final = 2000
"""Names, those next to the wanted one in the order of the alphabet. To compare more takes too long."""


def unknown_pod(key: ObjectKey, known: Iterable[ObjectKey]) -> str:
    """A pod does not exist; names the pod with devices that was probably meant.

    Args:
        key: of the pod.
        known: the pods with devices.
    """
    others = list(known)
    elsewhere = sorted(other.namespace for other in others if other.name == key.name)
    if elsewhere:
        meant = f"{nearest(key.namespace, elsewhere) or elsewhere[0]}/{key.name}"
    else:
        names = sorted(other.name for other in others if other.namespace == key.namespace)
        place = bisect_left(names, key.name)
        near = nearest(key.name, names[max(0, place - _MOST_COMPARED // 2) : place + _MOST_COMPARED // 2])
        meant = near and f"{key.namespace}/{near}"
    return f"pod {key} does not exist{did_you_mean(meant)}"


def needs_no_devices(key: ObjectKey) -> str:
    """A pod exists and needs no devices."""
    return f"pod {key} needs no devices: its devices do not restrict the choice of a node"
