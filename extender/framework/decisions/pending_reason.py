"""What a pending pod waits for."""

from enum import Enum


class PendingReason(Enum):
    """What a pending pod waits for."""

    NO_ATTEMPT = "no_attempt"
    """A scheduling gate keeps it from its scheduler, or its scheduler does not call the extender."""
    NOT_ASKED = "not_asked"
    """No scheduler has asked this replica about it."""
    CLAIMS = "claims"
    """A claim of the pod cannot be used on any node: it does not exist, is invalid, or is not ready."""
    GANG = "gang"
    """Pods of its gang are missing, or the devices for all of them."""
    QUOTA = "quota"
    """A DeviceQuota of its namespace allows no more."""
    DEVICES = "devices"
    """No node has the devices."""
    TERMINATING = "terminating"
    """The pod fits once terminating pods are gone."""
    SEARCH = "search"
    """No node was found, and a limit has stopped a search."""
    FILTER_ERROR = "filter_error"
    """Filter has ended with an error."""
    FITS = "fits"
    """Its devices fit on a node; the rest is up to its scheduler."""
    BIND_ERROR = "bind_error"
    """Bind has ended with an error, or waits for the devices to be ready."""
