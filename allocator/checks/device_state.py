"""The state of a device: whether a claim without any wishes can have it. Each check says which state it means."""

from enum import Enum


class DeviceState(Enum):
    """Whether a claim can have a device now: only if it is free or shared. From the best state to the worst."""

    FREE = "free"
    """Nothing holds it."""
    SHARED = "shared"
    """Claims hold shares of it, and there is room for another."""
    BLOCKED = "blocked"
    """Nothing holds it, but devices in use leave too little of a shared counter, or their groups exclude it."""
    TAINTED = "tainted"
    """A taint keeps off claims that do not tolerate it."""
    ALLOCATED = "allocated"
    """A claim holds all of it, or claims hold all of one of its capacities."""
    CLASH = "clash"
    """Claims hold it that exclude each other: two of them all of it, or together more than there is."""
    UNUSABLE = "unusable"
    """No claim can have it: its pool has a problem, no node reaches it, or a feature gate is off."""
