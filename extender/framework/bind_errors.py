"""Why a pod is not bound."""

from typing import Final

from allocator.tools import printable


class BindError(Exception):
    """The pod is not bound, as far as we know. The scheduler will try again. The text is printable.

    Attributes:
        why: the text without the node. It is the same for each node on which this is in the way.
    """

    def __init__(self, why: str, node: str = "") -> None:
        self.why = printable(why)
        super().__init__(printable(f"node {node}: {why}") if node else self.why)


class ControllerRefusesError(BindError):
    """A controller does not allocate. Claims were changed for the try, or counted as allocated, and that is undone."""


class ResourceQuotaRefusesError(BindError):
    """A ResourceQuota does not let a claim of the pod be made."""


class GivenBackError(BindError):
    """The allocation of a claim is useless and is given back."""


class DoubleAllocationError(GivenBackError):
    """Another claim got the same devices earlier, from another writer."""


class PluginRefusesError(GivenBackError):
    """A plugin, such as that of DeviceQuotas, does not allow what the pod would hold, or does hold.

    Attributes:
        event: the reason of the Event that tells it; empty: none does.
    """

    def __init__(self, why: str, event: str) -> None:
        super().__init__(why)
        self.event = event


class LapsedError(GivenBackError):
    """A device did not get ready."""


REFUSALS: Final = (ControllerRefusesError, PluginRefusesError, ResourceQuotaRefusesError)
"""Errors after which the next try ends in the same way, as things stand."""
