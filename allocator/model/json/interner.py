"""The interner shares equal values: the devices of a cluster repeat the same names, amounts and maps."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from allocator.model.devices import AttributeValue, Capacity
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.tools.fields import Fields
from allocator.tools.printable import shown

Capacities: TypeAlias = "tuple[Mapping[str, Capacity], Mapping[str, Quantity]]"
"""Capacities by the name as published, and their values by the qualified name."""


_ZERO: Final = Quantity(0)


@dataclass(slots=True)
class Interner:
    """Values that were parsed before, by their source. Each table is cleared when it grows beyond the limit.

    Attributes:
        limit: entries of one kind; of whole maps a tenth. Values that a driver publishes anew each time, such as serial
            numbers, fill a table with values of devices that are gone; so the limit bounds what they take.
        names: driver and published name to the qualified name.
        attributes, capacities, counters: whole maps, by their entries.
        plain_capacities: capacities without policies, by driver and by the names and amounts as published.
    """

    limit: int = 20_000
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    quantities: dict[str, Quantity] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)
    attributes: dict[Hashable, Mapping[str, AttributeValue]] = field(default_factory=dict)
    capacities: dict[Hashable, Capacities] = field(default_factory=dict)
    plain_capacities: dict[Hashable, Capacities] = field(default_factory=dict)
    counters: dict[Hashable, Mapping[str, Quantity]] = field(default_factory=dict)
    _owners: dict[str, type] = field(default_factory=dict)

    def trim(self) -> None:
        """Clear the tables that have grown beyond the limit."""
        values: tuple[dict[Any, Any], ...] = (self.texts, self.names, self.quantities, self.versions)
        maps = (self.attributes, self.capacities, self.plain_capacities, self.counters, self._owners)
        for tables, limit in ((values, self.limit), (maps, self.limit // 10)):
            for table in tables:
                if len(table) > limit:
                    table.clear()

    def text(self, value: str) -> str:
        """The one string object of this value."""
        return self.texts.setdefault(value, value)

    def quantity(self, value: object) -> Quantity:
        """The quantity of a JSON value: a string or a number.

        Raises:
            ValueError: not a quantity.
        """
        if isinstance(value, str):
            found = self.quantities.get(value)
            if found is None:
                found = self.quantities[value] = Quantity.parse(value.strip())
            return found
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.quantity(repr(value))
        raise ValueError(f"{shown(value)} is not a quantity")

    def version(self, text: str) -> Version:
        """The version of a text.

        Raises:
            ValueError: not a semantic version.
        """
        found = self.versions.get(text)
        if found is None:
            found = self.versions[text] = Version.parse(text)
        return found

    def attributes_of(self, driver: str) -> dict[str, AttributeValue]:
        """An empty map for the attributes of a device.

        The map is the ``__dict__`` of an instance. Python keeps the names of such maps once for each class, as long as
        each map gets the same names in the same order. The devices of most drivers do. A map of 11 attributes takes 160
        bytes instead of 460. Source: PEP 412.
        """
        owner = self._owners.get(driver)
        if owner is None:
            owner = self._owners[driver] = type("Attributes", (), {})
        found: dict[str, AttributeValue] = vars(owner())
        return found

    def qualified(self, driver: str, name: str) -> str:
        """The name with its domain; names without one are in the driver's domain."""
        found = self.names.get((driver, name))
        if found is None:
            found = self.names[driver, name] = name if "/" in name else f"{driver}/{name}"
        return found

    def read(self, fields: Fields, name: str) -> Quantity:
        """The quantity in a field; zero, and a problem, if it is absent."""
        found = self.read_or_none(fields, name)
        if found is None and not fields.has(name):
            fields.problem(name, "is required")
        return _ZERO if found is None else found

    def read_or_none(self, fields: Fields, name: str) -> Quantity | None:
        """The quantity in a field, or None if it is absent."""
        value = fields.data.get(name)
        if value is None:
            return None
        try:
            return self.quantity(value)
        except ValueError as error:
            fields.problem(name, str(error))
            return None

    def read_list(self, fields: Fields, name: str) -> tuple[Quantity, ...]:
        """A list of quantities; empty if it is absent."""
        found = []
        for i, value in enumerate(fields.items(name)):
            try:
                found.append(self.quantity(value))
            except ValueError as error:
                fields.problem(f"{name}[{i}]", str(error))
        return tuple(found)

    def read_map(self, fields: Fields, name: str) -> dict[str, Quantity]:
        """An object of quantities; empty if it is absent."""
        found = {}
        for key, value in fields.mapping(name).items():
            try:
                found[self.text(key)] = self.quantity(value)
            except ValueError as error:
                fields.problem(f"{name}[{key}]", str(error))
        return found
