"""A ResourceSlice: a part of the devices of a pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.model.devices import Placement, PoolId
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice: part of one generation of a pool. Either devices or counter sets, in valid objects.

    Attributes:
        slice_count: how many slices the pool of this generation has (``resourceSliceCount``).
        placement: None if each device has its own (``perDeviceNodeSelection``), or no known field is set.
        counter_sets: each counter set with its counters and their values (``sharedCounters``), in the order published.
        partition_type: the attribute that groups the partitions of the slice (``partitionTypeAttribute``); empty: none.
        created: when it was created, RFC 3339; empty if unknown.
        revision: ``metadata.generation``: 1, and 1 more for each change by its publisher.
    """

    name: str
    pool: PoolId
    generation: int = 1
    slice_count: int = 1
    placement: Placement | None = None
    per_device_placement: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[tuple[str, Mapping[str, Quantity]], ...] = ()
    skip_node_operations: tuple[str, ...] = ()
    partition_type: str = ""
    created: str = ""
    revision: int = 1
