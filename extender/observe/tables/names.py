"""The names that parameters of tables can have, and which name a misspelled one means."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from allocator.pools import Pool
from allocator.tools import JSON, meant_by
from extender.cluster.snapshot import Snapshot

_KNOWN: Final[Mapping[str, Callable[[Snapshot], Collection[str]]]] = {
    "driver": lambda snapshot: {pool.driver for pool in snapshot.inventory.pools},
    "pool": lambda snapshot: {pool.pool for pool in snapshot.inventory.pools},
    "device": lambda snapshot: {device for pool in snapshot.inventory.pools.values() for device in _devices(pool)},
    "node": lambda snapshot: snapshot.nodes,
    "namespace": lambda snapshot: {key.namespace for key in (*snapshot.pods, *snapshot.claims)},
    "pod": lambda snapshot: {key.name for key in snapshot.pods},
    "claim": lambda snapshot: {key.name for key in snapshot.claims},
}
"""By parameter. The names of devices' classes are not among them: an unknown class is an error."""


def _devices(pool: Pool) -> Iterator[str]:
    return (device.id.device for origin in pool.newest for device in origin.devices)


def meant(given: Mapping[str, JSON], snapshot: Snapshot) -> Iterator[str]:
    """``did you mean node="node-0"?`` for each parameter whose value misspells a name."""
    for parameter, value in given.items():
        if parameter in _KNOWN and isinstance(value, str):
            known = _KNOWN[parameter](snapshot)
            near = "" if value in known else meant_by(value, known)
            if near:
                yield f'did you mean {parameter}="{near}"?'
