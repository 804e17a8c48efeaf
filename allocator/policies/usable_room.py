"""Usable room: how much of what is left on a node other pods can use.

A shape is what a pod asks for. Suppose that only pods of one shape come, until the node has no devices or no CPU for
one more. The room that these pods take is the usable room of the node for the shape. CPU counts in parts of a pod, once
there is enough for one pod. The usable room of a node is the mean over the shapes, weighted by how often each is asked.
The loss of a placement is the usable room that it takes away.

"Beware of Fragmentation" (USENIX ATC 2023) counts what shapes can not use, and CPU only decides whether one pod fits.
With CPU in parts, nodes keep CPU and devices in proportion.

A partition counts as one device. Larger partitions overlap smaller ones, so only the smallest ones that serve a shape
count.
"""

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from allocator.cel import CelError
from allocator.cel.selectors import Selectors
from allocator.checks.capacity import CapacityArithmeticError, consumption
from allocator.model.claims import DeviceRequest, Request
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import DeviceId
from allocator.model.features import Features
from allocator.model.slices.device import Device
from allocator.policies.leftover import DeviceModel, Leftover
from allocator.search.limits import SearchBudget, TimedSelectors
from allocator.tools.recent import Recent

_TOLERANCE: Final = 1e-6
"""Rooms are rounded, so they may be wrong by this."""

_POINTS: Final = 1_000_000
"""The most pieces of tables that are remembered, about 25 MB."""

_NEEDS: Final = 1_000_000
"""The most needs of requests that are remembered: each of one request and one device model. About 25 MB."""


class Shape(NamedTuple):
    """The shape of a pod: all requests of its claims, and its CPU in thousandths of a core."""

    requests: tuple[Request, ...]
    cpu: int = 0


class Needs:
    """The room that a request needs of a device.

    Args:
        classes: by name.
        selectors: evaluates selectors.
        features: what may be allocated.
    """

    def __init__(self, classes: Mapping[str, DeviceClass], selectors: Selectors, features: Features) -> None:
        self.classes = classes
        self._selectors = selectors
        self._features = features

    def of(self, request: DeviceRequest, model: DeviceModel, budget: SearchBudget) -> float | None:
        """The share of a device that a request takes, 0 to 1; None if the device does not serve it, whatever is left.

        Selectors, capacities and the policies of capacities count. Taints and constraints do not.

        Raises:
            SearchLimitError: time was up.
        """
        device_class = self.classes.get(request.device_class)
        device = _device(model)
        if device_class is None:
            return None
        if not _matches((*device_class.selectors, *request.selectors), device, TimedSelectors(self._selectors, budget)):
            return None
        if not self._features.consumable_capacity or not (device.capacity or request.capacity):
            return 0.0 if model.is_shared else 1.0
        try:
            taken = consumption(device, request.capacity, fractional=self._features.fractional_capacity_range)
        except CapacityArithmeticError:
            return None
        if taken is None:
            return None
        sizes = {name: each.value.nano for name, each in model.capacity}
        need = max([amount.nano / sizes[name] for name, amount in taken.items() if sizes[name] > 0], default=0.0)
        if need > 1:
            return None
        return need if model.is_shared else 1.0


def _matches(texts: Sequence[str], device: Device, selectors: TimedSelectors) -> bool:
    try:
        return all(selectors.matches(text, device) for text in texts)
    except CelError:
        return False


def _device(model: DeviceModel) -> Device:
    """A device of a model, as selectors see it."""
    capacity = dict(model.capacity)
    qualified = {name if "/" in name else f"{model.driver}/{name}": each.value for name, each in model.capacity}
    return Device(
        DeviceId(model.driver, "", ""),
        {name: value for name, _, value in model.attributes},
        capacity,
        qualified,
        allow_multiple_allocations=model.is_shared,
    )


_Asked: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
"""For each request, the ways to serve it: the position of each way, and how many devices it takes."""


class RoomByCpu(NamedTuple):
    """The usable room of a leftover, by CPU: pieces of lines.

    Attributes:
        cpus: where each piece begins, in thousandths of a core, sorted; the first begins at 0.
        constants, slopes: the usable room on a piece is the constant, plus the slope times the CPU.
    """

    cpus: Sequence[float]
    constants: Sequence[float]
    slopes: Sequence[float]

    def at(self, cpu: int | None) -> float:
        """The usable room in devices, with this CPU; None: with as much as shapes can use."""
        if cpu is None:
            return self.constants[-1]
        place = max(0, bisect_right(self.cpus, cpu) - 1)
        return self.constants[place] + self.slopes[place] * cpu


class _Devices(NamedTuple):
    """Devices of one model with equal rooms.

    Attributes:
        needs: the room that each way to serve a request needs, by the position of that way.
        part: as `DeviceModel.part`.
    """

    needs: tuple[float | None, ...]
    room: float
    number: int
    part: float

    def shares(self, way: int) -> int:
        """The number of requests, served in one way, that have room on all these devices together."""
        need = self.needs[way]
        if need is None or need > self.room + _TOLERANCE:
            return 0
        return self.number * int((self.room + _TOLERANCE) / need) if need > 0 else self.number


class _Copies(NamedTuple):
    """Pods of one shape.

    Attributes:
        most: how many a node has devices for.
        size: the room that each takes.
    """

    most: int
    size: float


_NONE: Final = _Copies(0, 0.0)


class UsableRoom:
    """The usable room of nodes, for some weights of shapes.

    Args:
        weights: how often each shape is asked; any unit.
        needs: of the requests in the shapes.
    """

    def __init__(self, weights: Mapping[Shape, float], needs: Needs) -> None:
        total = sum(weights.values()) or 1.0
        self._needs = needs
        ways: dict[DeviceRequest, int] = {}
        self._asked: dict[tuple[Request, ...], tuple[_Asked, list[tuple[int, float]]]] = {}
        for shape, weight in weights.items():
            if shape.requests not in self._asked:
                self._asked[shape.requests] = (_numbered(shape.requests, ways), [])
            self._asked[shape.requests][1].append((shape.cpu, weight / total))
        self._ways = tuple(ways)
        self._of_model: Recent[tuple[float | None, ...]] = Recent(_NEEDS, lambda _, needs: 1 + len(needs))
        self._tables: Recent[RoomByCpu] = Recent(_POINTS, lambda _, table: len(table.cpus))

    def table(self, left: Leftover, budget: SearchBudget) -> RoomByCpu:
        """The usable room of a leftover.

        Raises:
            SearchLimitError: time was up before the table was known. What was found by then is remembered.
        """
        return self.known(left) or self._tables.keep(left, self._worked_out(left, budget))

    def known(self, left: Leftover) -> RoomByCpu | None:
        """The usable room of a leftover, if it is remembered."""
        return self._tables.find(left)

    def _worked_out(self, left: Leftover, budget: SearchBudget) -> RoomByCpu:
        devices = [_Devices(self._needs_of(model, budget), room, count, model.part) for (model, room), count in left]
        devices.sort(key=lambda each: (each.part, each.room, each.number))  # sums of equal leftovers are equal
        constants: dict[float, float] = {0.0: 0.0}
        slopes: dict[float, float] = {0.0: 0.0}
        for asked, cpus in self._asked.values() if devices else ():
            budget.look()
            copies = _copies(asked, devices)
            for cpu, weight in cpus if copies.most else ():
                size, end = weight * copies.size, float(cpu * copies.most)
                constants[end] = constants.get(end, 0.0) + size * copies.most
                if cpu:
                    slopes[cpu] = slopes.get(cpu, 0.0) + size / cpu
                    slopes[end] = slopes.get(end, 0.0) - size / cpu
        begins = sorted(constants.keys() | slopes.keys())
        return RoomByCpu(
            array("d", begins),
            array("d", accumulate(constants.get(begin, 0.0) for begin in begins)),
            array("d", accumulate(slopes.get(begin, 0.0) for begin in begins)),
        )

    def _needs_of(self, model: DeviceModel, budget: SearchBudget) -> tuple[float | None, ...]:
        found = self._of_model.find(model)
        if found is None:
            budget.look()
            found = self._of_model.keep(model, tuple([self._needs.of(way, model, budget) for way in self._ways]))
        return found


def _numbered(requests: Sequence[Request], ways: dict[DeviceRequest, int]) -> _Asked:
    """The ways to serve each request; a request with admin access takes nothing from others, so it is left out."""
    return tuple(
        [
            tuple([(ways.setdefault(way, len(ways)), max(1, way.count)) for way in request.alternatives])
            for request in requests
            if not any(way.admin_access for way in request.alternatives)
        ]
    )


def _copies(asked: _Asked, devices: Sequence[_Devices]) -> _Copies:
    """The pods of a shape that devices have room for, if no other pods come."""
    found = [next(filter(None, (_served(way, count, devices) for way, count in request)), None) for request in asked]
    served = [each for each in found if each is not None]
    if len(served) < len(found) or not served:
        return _NONE
    return _Copies(min(each.most for each in served), sum(each.size for each in served))


def _served(way: int, count: int, devices: Sequence[_Devices]) -> _Copies | None:
    """The requests that can be served in a way, each with a number of devices; None if none can."""
    shares = _without_rivals([(each, n) for each in devices if (n := each.shares(way))])
    total = sum([n for _, n in shares])
    if total < count or sum([each.number for each, _ in shares]) < count:
        return None
    room = sum([n * (each.needs[way] or 0.0) for each, n in shares])
    return _Copies(total // count, count * room / total)


def _without_rivals(shares: Sequence[tuple[_Devices, int]]) -> Sequence[tuple[_Devices, int]]:
    """The devices, of partitions only one of the smallest models: larger ones overlap them."""
    parts = [each for each in shares if each[0].part]
    if len(parts) < 2:
        return shares
    kept = min(parts, key=lambda each: (each[0].part, -each[1]))
    return [each for each in shares if each is kept or not each[0].part]
