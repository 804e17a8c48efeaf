"""Environments: which functions and variables an expression may use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from allocator.cel.functions import (
    conversions,
    core,
    formats,
    formatting,
    lists,
    network,
    optionals,
    quantities,
    regexes,
    sequences,
    sets,
    strings,
    times,
    urls,
    versions,
)
from allocator.cel.functions.declare import Declarations, Function, Library
from allocator.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of


class Kind(Enum):
    """New expressions, or expressions that the API server stored earlier, perhaps with more features on."""

    NEW = "NewExpressions"
    STORED = "StoredExpressions"


_LIBRARIES: Final[tuple[Library, ...]] = (
    core.LIBRARY, conversions.LIBRARY, times.LIBRARY, regexes.LIBRARY, sets.LIBRARY, optionals.LIBRARY,
    sequences.LIBRARY, quantities.LIBRARY, versions.LIBRARY, urls.LIBRARY, network.LIBRARY, formats.LIBRARY,
    formatting.LIBRARY,
)  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """The environment of a set of expressions: Kubernetes' device environment, as of 1.37.

    Attributes:
        kind: stored expressions may use every feature.
        consumable_capacity: ``device.allowMultipleAllocations`` (DRAConsumableCapacity).
        list_attributes: attributes may be lists, and ``includes`` (DRAListTypeAttributes).
    """

    kind: Kind = Kind.STORED
    consumable_capacity: bool = True
    list_attributes: bool = True

    @property
    def attribute(self) -> Type:
        """The type of attributes; the real type depends on the device."""
        return DYN if self.kind is Kind.STORED or self.list_attributes else ANY

    @cached_property
    def declarations(self) -> Declarations:
        """The functions and fields of this environment, for the checker.

        Overloads are in upstream's order, because the first one that fits may determine a type. Stored expressions
        have a newer list library. Its overloads come after the overloads of strings.
        """
        stored = self.kind is Kind.STORED
        with_lists = stored or self.list_attributes
        fields = {
            "driver": STRING,
            "attributes": map_of(STRING, map_of(STRING, self.attribute)),
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        }
        if stored or self.consumable_capacity:
            fields["allowMultipleAllocations"] = BOOL
        of_both = (strings.LIBRARY, lists.LIBRARY) if stored else (lists.LIBRARY, strings.LIBRARY)
        libraries = (*of_both, *_LIBRARIES, *((lists.INCLUDES,) if with_lists else ()))
        return Declarations(_merged(libraries), fields)


def _merged(libraries: Iterable[Library]) -> Mapping[str, Function]:
    """Functions by name; a library may add overloads to a function of another library."""
    found: dict[str, Function] = {}
    for library in libraries:
        for function in library:
            before = found.get(function.name)
            overloads = function.overloads if before is None else (*before.overloads, *function.overloads)
            cost = function.cost if before is None or before.cost is None else before.cost
            singleton = function.singleton or (before is not None and before.singleton)
            found[function.name] = Function(function.name, overloads, cost, singleton, function.guarded)
    return found
