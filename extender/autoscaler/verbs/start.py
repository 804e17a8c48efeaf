"""start: a session on the cluster as it is now."""

from dataclasses import replace
from typing import Final

from allocator.tools import JSON, driver_name, shown
from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.driver_scope import Scope
from extender.verbs import wire
from extender.verbs.verb import Doc, Verb
from extender.verbs.wire import WireError, mismatch, optional, root_of

MOST_DRIVERS: Final = 64
"""Drivers in the scope of one session."""


def decode_start(body: bytes) -> frozenset[str] | None:
    """An empty body, or an object; ``Drivers`` names the drivers that the session judges. None: all drivers.

    Raises:
        WireError: the body is something else; there is no driver, or too many; a name is not one of a driver.
    """
    names = optional(root_of(body), "Drivers", list) if body else None
    if names is None:
        return None
    if not 0 < len(names) <= MOST_DRIVERS:
        raise WireError("Drivers", f"expected 1 to {MOST_DRIVERS} drivers, not {len(names)}; without it, all count")
    return frozenset(_driver(name, f"Drivers[{index}]") for index, name in enumerate(names))


def start_session(by: InSession, drivers: frozenset[str] | None = None) -> str:
    """The id of a new session.

    Args:
        by: its caller starts the session.
        drivers: those that the session judges; None: all.

    Raises:
        RefusedError: the cluster is not known well enough.
    """
    world = by.autoscaler.latest()
    scope = None if drivers is None else Scope(drivers, world.supply)
    return by.autoscaler.sessions.start(replace(world, scope=scope), by.caller, by.owner).id


async def _started(by: InSession, drivers: frozenset[str] | None) -> str:
    return start_session(by, drivers)


def _driver(value: JSON, where: str) -> str:
    if not isinstance(value, str):
        raise mismatch(where, str, value)
    if wrong := driver_name(value):
        raise WireError(where, f"{shown(value)} {wrong}")
    return value


START: Final[Verb[InSession, frozenset[str] | None, str]] = Verb(
    "start",
    decode_start,
    _started,
    lambda _, session: wire.as_line({"Session": session}),
    Doc(
        "Begin a session on a snapshot of the cluster. Later calls carry its id as the header session.",
        {"Drivers": ["gpu.example.com"]},
        {"Session": "lk6RqTZ8tR0BzQ8FmXyB4oTnJ1yZ0m7bYwG2cUeVh5s"},
    ),
    is_small=True,
)
