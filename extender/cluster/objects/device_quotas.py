"""DeviceQuotas: how many devices, and how much capacity, the claims of a namespace may be allocated.

The kind is our own; ``deploy/crds`` has its definition, which validates what is read here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from allocator import Quantity
from allocator.tools import Fields, ObjectReader, dns_label, printable, shown
from extender.kube.api import ObjectKey

DEVICES: Final = "devices"
"""The name of the number of devices, which a limit counts beside amounts of capacity."""

Amounts: TypeAlias = Mapping[str, Quantity]
"""What a limit counts, to the amount: `DEVICES`, and ``capacity[<name>]``."""


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """A limit of a DeviceQuota.

    Attributes:
        name: unique in the quota; limits of one name are added up in a cohort.
        device_class: only devices that were requested by this class count; empty: devices of any class count.
        selectors: only devices that match all of these CEL expressions count.
        hard: the most that may be allocated.
        capacities: names of the limited capacities; a name without a domain lives in the domain of each driver.
    """

    name: str
    device_class: str = ""
    selectors: tuple[str, ...] = ()
    hard: Amounts = field(default_factory=dict)
    capacities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceQuota:
    """A DeviceQuota.

    Attributes:
        cohort: quotas of one cohort lend each other unused amounts; empty: the quota is in no cohort.
        borrowing: the quota may borrow.
        generation: counts changes of the spec.
        status: as the API server has it; not compared.
    """

    namespace: str
    name: str
    limits: tuple[DeviceLimit, ...] = ()
    cohort: str = ""
    borrowing: bool = False
    generation: int = 0
    status: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)


def capacity_key(name: str) -> str:
    """What a limit counts of a capacity."""
    return f"capacity[{name}]"


def counted_name(counts: str) -> str:
    """`DEVICES`, or the name of the capacity, of what a limit counts."""
    return counts.removeprefix("capacity[").removesuffix("]")


def parse_device_quota(obj: Mapping[str, object], check_expression: Callable[[str], str | None]) -> DeviceQuota:
    """A DeviceQuota.

    Args:
        obj: of ``dra-extender.dev/v1alpha1``.
        check_expression: what is wrong with a CEL expression over devices, or None.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("DeviceQuota", obj, ("dra-extender.dev/v1alpha1",))
    spec = reader.top.child("spec")
    reader.top.refuse_unknown({"apiVersion", "kind", "metadata", "spec", "status"})
    spec.refuse_unknown({"limits", "cohort", "borrowing"})
    limits = tuple(_limit(each, check_expression) for each in spec.children("limits"))
    names = [each.name for each in limits]
    for name in sorted({name for name in names if names.count(name) > 1}):
        spec.problem("limits", f"{shown(name)} is there twice")
    if not limits:
        spec.problem("limits", "is required")
    cohort = spec.text("cohort")
    if cohort and (wrong := dns_label(cohort)):
        spec.problem("cohort", f"{shown(cohort)} {wrong}")
    if spec.flag("borrowing") and not spec.text("cohort"):
        spec.problem("borrowing", "needs a cohort")
    quota = DeviceQuota(
        namespace=reader.metadata.text("namespace") or "default",
        name=reader.name,
        limits=limits,
        cohort=cohort,
        borrowing=spec.flag("borrowing"),
        generation=reader.metadata.integer("generation"),
        status=reader.top.mapping("status"),
    )
    reader.finish()
    return quota


def _limit(fields: Fields, check_expression: Callable[[str], str | None]) -> DeviceLimit:
    fields.refuse_unknown({"name", "deviceClassName", "selectors", "devices", "capacity"})
    selectors = []
    for each in fields.children("selectors"):
        cel = each.child("cel")
        selectors.append(cel.required_text("expression"))
        problem = check_expression(selectors[-1]) if selectors[-1] else None
        if problem:
            cel.problem("expression", printable(problem))
    if not selectors and not fields.has("deviceClassName"):
        fields.problem("", "needs deviceClassName or selectors")
    amounts = _amounts(fields)
    hard = {capacity_key(name): amount for name, amount in amounts.items()}
    if fields.has("devices"):
        hard[DEVICES] = Quantity.from_int(fields.integer("devices"))
        if hard[DEVICES].nano < 0:
            fields.problem("devices", "is negative")
    if not hard:
        fields.problem("", "needs devices or capacity")
    if fields.has("capacity") and not amounts:
        fields.problem("capacity", "names no capacity")
    name, device_class = fields.required_text("name"), fields.text("deviceClassName")
    if name and (wrong := dns_label(name)):
        fields.problem("name", f"{shown(name)} {wrong}")
    return DeviceLimit(name, device_class, tuple(selectors), hard, tuple(amounts))


def _amounts(fields: Fields) -> Mapping[str, Quantity]:
    found = {}
    for name, value in fields.text_mapping("capacity").items():
        try:
            found[name] = Quantity.parse(value)
        except ValueError:
            fields.problem(f"capacity[{name}]", f"{shown(value)} is not a quantity")
            continue
        if found[name].nano < 0:
            fields.problem(f"capacity[{name}]", f"{shown(value)} is negative")
    return found
