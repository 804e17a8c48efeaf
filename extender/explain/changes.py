"""What somebody can do so that a pod fits, each as words and as a change of a snapshot, so that it can be tried out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from allocator.explain.conditions import conditions, without
from allocator.explain.obstacles import Obstacle, Wanted, taint_text
from allocator.model import (
    AllocationMode,
    ClaimSpec,
    ConstraintSpec,
    CounterConsumption,
    Device,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    Placement,
    PoolId,
    Request,
    Slice,
    Toleration,
)
from allocator.quantity import Quantity
from extender.cluster.api import ObjectKey
from extender.cluster.objects import ClaimObject, Pod
from extender.cluster.snapshot import Snapshot

Fork = Callable[[Snapshot], Snapshot]


class Kind(IntEnum):
    """What a change touches, the least invasive first."""

    WAIT = 0
    CORRECT = 1
    TOLERATE = 2
    ASK_FOR_LESS = 3
    DROP_CONSTRAINT = 4
    RELAX_SELECTOR = 5
    FREE = 6
    ADD = 7


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do.

    Attributes:
        what: the thing that is changed; no two changes of one proposal have the same.
        text: what to do, as an order.
        how: the command that does it, or the fields to write.
        size: how many things that is; of devices, each counts.
        weight: among changes of a kind, the lightest is the least invasive.
        fork: the cluster after it.
    """

    kind: Kind
    what: str
    text: str
    how: str
    fork: Fork = field(compare=False)
    size: int = 1
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A claim that is to be allocated, and the object where it is written.

    Attributes:
        source: kind and name of the claim, or of the template that it is made from.
        is_written: by somebody, who can write it otherwise; False: it follows from the pod's extended resources.
    """

    claim: ClaimObject
    source: str
    is_written: bool = True

    def edited(self, edit: Callable[[ClaimSpec], ClaimSpec]) -> Fork:
        """The fork in which the claim's spec is another one."""
        key = self.claim.key

        def fork(snapshot: Snapshot) -> Snapshot:
            found = snapshot.claims[key]
            return snapshot.with_claim(replace(found, claim=replace(found.claim, spec=edit(found.claim.spec))))

        return fork

    def edited_request(self, wanted: Wanted, edit: Callable[[DeviceRequest], DeviceRequest]) -> Fork:
        """The fork in which one way to serve a request is another one."""

        def of_request(request: Request) -> Request:
            if request.name != wanted.request_name:
                return request
            changed = (edit(a) if a.name == wanted.request.name else a for a in request.alternatives)
            return replace(request, alternatives=tuple(changed))

        return self.edited(lambda spec: replace(spec, requests=tuple(map(of_request, spec.requests))))

    def at(self, wanted: Wanted) -> str:
        """Where a request stands."""
        return f"{self.source}, request {wanted.label}"


def tolerate(target: Target, wanted: Wanted, taint: DeviceTaint) -> Change:
    """Tolerate a taint of devices."""
    operator = "Equal" if taint.value else "Exists"
    toleration = Toleration(taint.key, operator, taint.value, taint.effect)
    value = f', value: "{taint.value}"' if taint.value else ""
    return Change(
        Kind.TOLERATE,
        f"{target.at(wanted)}: taint {taint_text(taint)}",
        f"tolerate the taint {taint_text(taint)} in request {wanted.label}",
        f"in {target.at(wanted)}, add to tolerations: "
        f"{{key: {taint.key}, operator: {operator}{value}, effect: {taint.effect}}}",
        target.edited_request(wanted, lambda r: replace(r, tolerations=(*r.tolerations, toleration))),
    )


def relax(target: Target, wanted: Wanted, obstacle: Obstacle) -> Change:
    """Drop a condition of a selector."""
    number, part = obstacle.number, obstacle.part
    old = wanted.request.selectors[number]
    left = without(old, part)
    instead = f", which leaves: {left}" if left else ""
    return Change(
        Kind.RELAX_SELECTOR,
        f"{target.at(wanted)}: selector {number} condition {part}",
        f"drop the condition {conditions(old)[part]} from request {wanted.label}",
        f"in {target.at(wanted)}, remove it from selector {number}{instead}",
        target.edited_request(wanted, lambda r: replace(r, selectors=_relaxed(r.selectors, number, old, part))),
    )


def _relaxed(selectors: Sequence[str], number: int, old: str, part: int) -> tuple[str, ...]:
    """The condition becomes ``true``, so that the numbers of others stay what they are."""
    now, gone = selectors[number], conditions(old)[part]
    kept = ["true" if each == gone else each for each in conditions(now)]
    return (*selectors[:number], " && ".join(kept), *selectors[number + 1 :])


def correct_attribute(target: Target, wanted: Wanted, obstacle: Obstacle) -> Change | None:
    """Write the attribute that exists where a selector reads one that does not; None where that can't be told."""
    old = wanted.request.selectors[obstacle.number]
    new = corrected(old, obstacle.missing, obstacle.meant)
    if new == old:
        return None
    number = obstacle.number
    return Change(
        Kind.CORRECT,
        f"{target.at(wanted)}: selector {number} attribute {obstacle.missing}",
        f"write {obstacle.meant} instead of {obstacle.missing} in request {wanted.label}",
        f"in {target.at(wanted)}, selector {number} becomes: {new}",
        target.edited_request(
            wanted,
            lambda r: replace(
                r,
                selectors=tuple(
                    corrected(text, obstacle.missing, obstacle.meant) if i == number else text
                    for i, text in enumerate(r.selectors)
                ),
            ),
        ),
    )


def corrected(expression: str, missing: str, meant: str) -> str:
    """An expression that reads another attribute."""
    (domain, _, name), (right_domain, _, right) = missing.rpartition("/"), meant.rpartition("/")
    quoted = re.escape(domain)
    pattern = re.compile(
        rf"""device\.attributes\[(["']){quoted}\1\]\s*(?:\.\s*{re.escape(name)}\b|\[(["']){re.escape(name)}\2\])"""
    )
    return pattern.sub(lambda _: f'device.attributes["{right_domain}"].{right}', expression)


def ask_for(target: Target, wanted: Wanted, count: int) -> Change:
    """Ask for fewer devices, or for so many instead of all."""
    takes_all = wanted.request.mode is AllocationMode.ALL
    asked = "all" if takes_all else str(wanted.request.count)
    fields = f"allocationMode: ExactCount, count: {count}" if takes_all else f"count: {count}"
    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: count",
        f"ask for {count} {'device' if count == 1 else 'devices'} instead of {asked} in request {wanted.label}",
        f"in {target.at(wanted)}: {fields}",
        target.edited_request(wanted, lambda r: replace(r, mode=AllocationMode.EXACT_COUNT, count=count)),
        size=1 if takes_all else wanted.request.count - count,
    )


def ask_for_capacity(target: Target, wanted: Wanted, name: str, left: Quantity) -> Change:
    """Ask for as much of a capacity as there is."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        kept = tuple((n, left if n == name else amount) for n, amount in request.capacity or ())
        return replace(request, capacity=kept)

    asked = dict(wanted.request.capacity or ())[name]
    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: capacity {name}",
        f"ask for {left} of {name} instead of {asked} in request {wanted.label}",
        f'in {target.at(wanted)}: capacity: {{requests: {{{name}: "{left}"}}}}',
        target.edited_request(wanted, edit),
    )


def drop_capacity(target: Target, wanted: Wanted, name: str) -> Change:
    """Take whatever there is of a capacity."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        return replace(request, capacity=tuple(pair for pair in request.capacity or () if pair[0] != name) or None)

    return Change(
        Kind.ASK_FOR_LESS,
        f"{target.at(wanted)}: capacity {name}",
        f"do not ask for capacity {name} in request {wanted.label}",
        f"in {target.at(wanted)}: remove {name} from capacity.requests",
        target.edited_request(wanted, edit),
        weight=1,
    )


def correct_capacity(target: Target, wanted: Wanted, name: str, meant: str) -> Change:
    """Write the capacity that exists."""

    def edit(request: DeviceRequest) -> DeviceRequest:
        return replace(
            request, capacity=tuple((meant if n == name else n, amount) for n, amount in request.capacity or ())
        )

    return Change(
        Kind.CORRECT,
        f"{target.at(wanted)}: capacity {name}",
        f"write {meant} instead of {name} in the capacity of request {wanted.label}",
        f'in {target.at(wanted)}: capacity: {{requests: {{{meant}: "{dict(wanted.request.capacity or ())[name]}"}}}}',
        target.edited_request(wanted, edit),
    )


def constraint_text(spec: ConstraintSpec) -> str:
    """A constraint as it is written."""
    kind = spec.kind.value if spec.kind else "constraint"
    return f"{kind}: {spec.attribute}"


def drop_constraint(target: Target, number: int, spec: ConstraintSpec) -> Change:
    """Do without a constraint."""
    return Change(
        Kind.DROP_CONSTRAINT,
        f"{target.source}: constraint {number}",
        f"drop the constraint {constraint_text(spec)}",
        f"in {target.source}, remove constraints[{number}]",
        target.edited(lambda s: replace(s, constraints=tuple(c for c in s.constraints if c != spec))),
    )


def correct_constraint(target: Target, number: int, spec: ConstraintSpec, meant: str) -> Change:
    """Write the attribute that exists into a constraint."""
    right = replace(spec, attribute=meant)
    return Change(
        Kind.CORRECT,
        f"{target.source}: constraint {number}",
        f"write {meant} instead of {spec.attribute} in the constraint",
        f"in {target.source}, constraints[{number}]: {constraint_text(right)}",
        target.edited(lambda s: replace(s, constraints=tuple(right if c == spec else c for c in s.constraints))),
    )


def use_class(target: Target, missing: str, meant: str) -> Change:
    """Ask for a class that exists."""

    def edit(spec: ClaimSpec) -> ClaimSpec:
        def of(request: Request) -> Request:
            ways = (replace(a, device_class=meant) if a.device_class == missing else a for a in request.alternatives)
            return replace(request, alternatives=tuple(ways))

        return replace(spec, requests=tuple(map(of, spec.requests)))

    return Change(
        Kind.CORRECT,
        f"{target.source}: class {missing}",
        f"ask for device class {meant} instead of {missing}",
        f"in {target.source}: deviceClassName: {meant}",
        target.edited(edit),
    )


def release(claim: ClaimObject, snapshot: Snapshot) -> Change:
    """Free what a claim holds: by deleting the pods that use it, or, where there are none, the claim."""
    pods, held = users(claim, snapshot), _named(held_by(claim, snapshot))
    if pods:
        text = f"delete {' and '.join(f'pod {pod}' for pod in pods)}, which frees {held}"
        how = "; ".join(f"kubectl delete pod -n {pod.namespace} {pod.name}" for pod in pods)
    else:
        text = f"delete claim {claim.key}, which no pod uses: that frees {held}"
        how = _deletion(claim)
    known = (snapshot.pods.get(pod) for pod in pods)
    weight = sum(pod.priority for pod in known if pod is not None)
    size = max(1, len(pods))
    return Change(Kind.FREE, f"claim {claim.key}", text, how, _freed(claim), size=size, weight=weight)


def renew(claim: ClaimObject, snapshot: Snapshot) -> Change:
    """Let a claim that nobody else uses be allocated again, elsewhere."""
    held = _named(held_by(claim, snapshot))
    text = f"delete claim {claim.key} and make it again, so that it can have other devices than {held}"
    return Change(Kind.FREE, f"claim {claim.key}", text, _deletion(claim), _freed(claim), weight=-1)


def _freed(claim: ClaimObject) -> Fork:
    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.claims[claim.key]
        freed = replace(found, claim=replace(found.claim, allocation=None, reserved_for=()))
        return snapshot.with_claim(freed).without_in_flight(claim.claim.uid)

    return fork


def _deletion(claim: ClaimObject) -> str:
    return f"kubectl delete resourceclaim -n {claim.key.namespace} {claim.key.name}"


def held_by(claim: ClaimObject, snapshot: Snapshot) -> tuple[DeviceId, ...]:
    """The devices that a claim holds."""
    results = (r for a in snapshot.held_by(claim.claim.uid) for r in a.results if not r.admin_access)
    return tuple(dict.fromkeys(r.device for r in results))


def _named(devices: Sequence[DeviceId]) -> str:
    """Some devices by name."""
    more = f" and {len(devices) - MAX_NAMED} more" if len(devices) > MAX_NAMED else ""
    return ", ".join(str(device) for device in devices[:MAX_NAMED]) + more


MAX_NAMED: Final = 3
"""Devices named in one line."""


def users(claim: ClaimObject, snapshot: Snapshot) -> tuple[ObjectKey, ...]:
    """The pods that a claim is reserved for, or that it is just being allocated for."""
    names = {ObjectKey(claim.key.namespace, each.name) for each in claim.claim.reserved_for if each.resource == "pods"}
    flight = snapshot.in_flight.get(claim.claim.uid)
    pod = snapshot.pod(flight.pod_uid) if flight else None
    return tuple(sorted(names | ({pod.key} if pod else set())))


def add_devices(like: Device, node: str, count: int) -> Change:
    """Publish more devices, each in a pool of its own, with as much of counters as it needs."""

    def fork(snapshot: Snapshot) -> Snapshot:
        for number in range(count):
            for each in _pool_of_one(like, node, number):
                snapshot = snapshot.with_slice(each)
        return snapshot

    return Change(
        Kind.ADD,
        f"node {node}: devices like {like.id}",
        f"add {count} more {'device' if count == 1 else 'devices'} like {like.id} to node {node}",
        "the driver has to publish them in a ResourceSlice",
        fork,
        size=count,
    )


def _pool_of_one(like: Device, node: str, number: int) -> tuple[Slice, ...]:
    pool = PoolId(like.driver, f"{like.id.pool}-{node}-more-{number}")
    device = replace(like, id=DeviceId(*pool, "device-0"), taints=(), placement=None)
    here = Placement(node_name=node)
    parts = 2 if device.consumes_counters else 1
    slices = [Slice(f"{pool.driver}-{pool.pool}", pool, 1, parts, here, devices=(device,))]
    if device.consumes_counters:
        sets = tuple((name, amounts) for name, amounts in _demand(device.consumes_counters).items())
        slices.append(Slice(f"{pool.driver}-{pool.pool}-counters", pool, 1, parts, here, counter_sets=sets))
    return tuple(slices)


def _demand(consumed: Sequence[CounterConsumption]) -> dict[str, dict[str, Quantity]]:
    sets: dict[str, dict[str, Quantity]] = {}
    for each in consumed:
        of_set = sets.setdefault(each.counter_set, {})
        for name, amount in each.counters.items():
            of_set[name] = of_set[name] + amount if name in of_set else amount
    return sets


def complete(pool: PoolId, problem: str) -> Change:
    """Wait until the driver has published the rest of a pool."""

    def fork(snapshot: Snapshot) -> Snapshot:
        slices = snapshot.inventory.pools[pool].slices
        newest = max(s.generation for s in slices)
        known = [s for s in slices if s.generation == newest]
        for each in known:
            snapshot = snapshot.with_slice(replace(each, slice_count=len(known)))
        return snapshot

    return Change(
        Kind.WAIT,
        f"pool {pool}",
        f"let the driver publish the rest of pool {pool} ({problem}): the devices that are there will do",
        f"kubectl get resourceslices --field-selector spec.driver={pool.driver}",
        fork,
    )


def rename_reference(pod: Pod, name: str, wrong: str, right: str, *, template: bool) -> Change:
    """Let a pod's entry mean a claim or template that exists."""
    field_name = "resourceClaimTemplateName" if template else "resourceClaimName"

    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.pods[pod.key]
        claims = tuple(
            replace(c, claim_name=None if template else right, template_name=right if template else None)
            if c.name == name
            else c
            for c in found.claims
        )
        return snapshot.with_pod(replace(found, claims=claims))

    return Change(
        Kind.CORRECT,
        f"pod {pod}: {name}",
        f"name {'claim template' if template else 'claim'} {right} instead of {wrong}",
        f"in the pod's spec.resourceClaims, entry {name}: {field_name}: {right}",
        fork,
    )


def combined(changes: Sequence[Change]) -> Fork:
    """The cluster after all of some changes."""

    def fork(snapshot: Snapshot) -> Snapshot:
        for change in changes:
            snapshot = change.fork(snapshot)
        return snapshot

    return fork
