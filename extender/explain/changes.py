"""What somebody can do so that a pod fits: in words, and as a fork of a snapshot, so that it can be tried out.

Here is what is done to the cluster; what is asked for otherwise is in `extender.explain.edits`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from allocator import (
    ClaimSpec,
    CounterConsumption,
    Device,
    DeviceId,
    DeviceRequest,
    Features,
    Placement,
    PoolId,
    Quantity,
    Request,
    Slice,
    Wanted,
    with_gates,
)
from extender.explain.holdings import in_words, users
from extender.state.objects import ClaimObject
from extender.state.snapshot import Snapshot

Fork = Callable[[Snapshot], Snapshot]


class Kind(IntEnum):
    """What a change touches, the least invasive first."""

    WAIT = 0
    CORRECT = 1
    REPAIR = 2
    TOLERATE = 3
    ASK_FOR_LESS = 4
    DROP_CONSTRAINT = 5
    RELAX_SELECTOR = 6
    CONFIGURE = 7
    FREE = 8
    ADD = 9


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
        gate: the feature gate that is turned on; empty for changes of the cluster.
    """

    kind: Kind
    what: str
    text: str
    how: str
    fork: Fork = field(compare=False)
    size: int = 1
    weight: int = 0
    gate: str = ""


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


def release(claim: ClaimObject, snapshot: Snapshot) -> Change:
    """Free what a claim holds: by deleting the pods that use it, or, where there are none, the claim."""
    pods, held = users(claim, snapshot), in_words(claim, snapshot)
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
    held = in_words(claim, snapshot)
    text = f"delete claim {claim.key} and make it again, so that it can have other devices than {held}"
    return Change(Kind.FREE, f"claim {claim.key}", text, _deletion(claim), _freed(claim), weight=-1)


def _freed(claim: ClaimObject) -> Fork:
    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.claims[claim.key]
        freed = replace(found, claim=replace(found.claim, allocation=None, reserved_for=()))
        return snapshot.with_claim(freed).without_assumed(claim.claim.uid)

    return fork


def _deletion(claim: ClaimObject) -> str:
    return f"kubectl delete resourceclaim -n {claim.key.namespace} {claim.key.name}"


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


def combined(changes: Sequence[Change]) -> Fork:
    """The cluster after all of some changes."""

    def fork(snapshot: Snapshot) -> Snapshot:
        for change in changes:
            snapshot = change.fork(snapshot)
        return snapshot

    return fork


def configured(changes: Iterable[Change], features: Features) -> Features:
    """The features after some changes."""
    return with_gates(features, {change.gate: True for change in changes if change.gate})


def invasiveness(change: Change) -> tuple[Kind, int, str]:
    """A key to sort changes by, the least invasive first."""
    return change.kind, change.weight, change.text
