"""Allocator cases: does first-fit answer as recorded, and does best-fit agree on yes and no."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from allocator import (
    Allocation,
    AllocationResult,
    AllocatorError,
    Claim,
    DeviceClass,
    DeviceId,
    Features,
    Inventory,
    Limits,
    Node,
    Quantity,
    Selectors,
    Task,
    Usage,
    allocate,
    allocation_to_json,
    parse_claim,
    parse_device_class,
    parse_node,
    parse_slice,
)
from allocator.model.features import NO_FEATURES
from allocator.policies import BEST_FIT, FIRST_FIT, Policy

Json = dict[str, Any]

SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
"""What recorded share ids are normalised to."""

LIMITS = Limits(steps=1_000_000, seconds=60.0)

FEATURES = {
    "AdminAccess": "admin_access",
    "CompatibilityGroups": "compatibility_groups",
    "ConsumableCapacity": "consumable_capacity",
    "DerivedAttributes": "derived_attributes",
    "DeviceBindingAndStatus": "binding_conditions",
    "DeviceTaints": "device_taints",
    "FractionalCapacityRange": "fractional_capacity_range",
    "ListTypeAttributes": "list_type_attributes",
    "OptionalNodeOperations": "optional_node_operations",
    "PartitionableDevices": "partitionable_devices",
    "PrioritizedList": "prioritized_list",
}
"""A case's names of the features; one that is unknown to us fails the case."""


class World:
    """A case's objects, parsed once for all of its runs. Slices may share a name in cases: they are told apart."""

    def __init__(self, case: Json) -> None:
        switches = {FEATURES[name]: on for name, on in case["features"].items()}
        off = {name: getattr(NO_FEATURES, name) for name in FEATURES.values()}
        self.features = Features(**{**off, **switches})
        self.claims: tuple[Claim, ...] = tuple(_claim(c) for c in case["claims"])
        classes = [parse_device_class(c) for c in case["deviceClasses"]]
        self.classes: dict[str, DeviceClass] = {c.name: c for c in classes}
        slices = (parse_slice(s) for s in case["resourceSlices"])
        self.inventory = Inventory.of(replace(s, name=f"{s.name}#{i:04}") for i, s in enumerate(slices))
        self.nodes: dict[str, Node] = {n.name: n for n in map(parse_node, case["nodes"])}
        self.usage = _usage(case)
        self.selectors = _selectors()

    def task(self, node: str) -> Task:
        """What is to be decided on one node."""
        at = self.nodes[node]
        pools = self.inventory.for_node(at, self.features)
        return Task(at, self.claims, self.classes, pools, self.usage, features=self.features)


@cache
def _selectors() -> Selectors:
    """One memory for all cases of a process, as a service has it."""
    return Selectors()


def run_case(case: Json) -> str | None:
    """None if the case passes, else what is different."""
    world = World(case)
    return next(_differences(case, world), None)


def _differences(case: Json, world: World) -> Iterator[str]:
    for run in case["runs"]:
        outcome, results, error = decide(world, run["node"], FIRST_FIT)
        where = f"node {run['node']}"
        if outcome != run["outcome"]:
            yield f"{where}: {outcome}, recorded {run['outcome']} ({error or run.get('error', '')})"
        elif outcome == "allocated" and not case.get("quirks"):
            ours = [canonical(allocation_to_json(result)) for result in results]
            theirs = [canonical(result) for result in run.get("results") or []]
            if ours != theirs:
                yield f"{where}: {ours}, recorded {theirs}"
        best = decide(world, run["node"], BEST_FIT)[0]
        if best != outcome:
            yield f"{where}: best-fit says {best}, first-fit {outcome}"


def decide(world: World, node: str, policy: Policy) -> tuple[str, tuple[AllocationResult, ...], str]:
    """Outcome, results, and the text of an error."""
    try:
        answer = allocate(
            world.task(node),
            selectors=world.selectors,
            clock=_ticks(),
            new_share_id=lambda: SHARE_ID,
            policy=policy,
            limits=LIMITS,
        )
    except AllocatorError as error:
        return "error", (), str(error)
    if isinstance(answer, Allocation):
        return "allocated", answer.results, ""
    return "nofit", (), ""


def canonical(value: Any, key: str = "") -> Any:
    """JSON such that equal answers are equal: quantities by value, requirements of a selector in any order."""
    if isinstance(value, dict):
        if key == "consumedCapacity":
            return {name: Quantity.parse(str(amount)) for name, amount in value.items()}
        return {k: canonical(v, k) for k, v in value.items() if v not in (None, [], {})}
    if isinstance(value, list):
        items = [canonical(v) for v in value]
        return sorted(items, key=str) if key in ("matchExpressions", "matchFields") else items
    return value


def _claim(raw: Json) -> Claim:
    """Cases are not defaulted as the API server defaults: in them, a count that is absent is 0."""
    claim = parse_claim(raw)
    requests = zip(claim.spec.requests, raw["spec"].get("devices", {}).get("requests", ()), strict=True)
    counted = tuple(
        replace(
            request,
            alternatives=tuple(
                replace(each, count=given.get("count", 0))
                for each, given in zip(
                    request.alternatives, entry.get("firstAvailable") or [entry.get("exactly")], strict=False
                )
            ),
        )
        for request, entry in requests
    )
    return replace(claim, spec=replace(claim.spec, requests=counted))


def _ticks() -> Callable[[], float]:
    numbers = count()
    return lambda: next(numbers) / 1000


def _usage(case: Json) -> Usage:
    return Usage.of(
        (_device(d) for d in case.get("allocatedDevices") or ()),
        ((_device(d), str(d["shareID"])) for d in case.get("allocatedSharedDeviceIDs") or ()),
        {
            _device(entry): {name: Quantity.parse(str(v)).nano for name, v in entry["capacity"].items()}
            for entry in case.get("aggregatedCapacity") or ()
        },
    )


def _device(entry: Json) -> DeviceId:
    return DeviceId(entry["driver"], entry["pool"], entry["device"])
