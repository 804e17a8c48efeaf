"""The cluster at one moment: objects and indexes over them, immutable. Snapshots share what did not change.

For a what-if, make a fork with `with_claim`, `without_claim` and so on: indexes and usage follow, so that a simulation
runs the same code as the live cluster.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from immutables import Map

from allocator import AllocationResult, DeviceClass, DeviceId, Inventory, Node, PoolId, Slice, TaintRule, Usage
from allocator.checks import NO_RULES, TaintRules
from extender.cluster.indexes import (
    AssumedAllocation,
    AssumedNomination,
    ControllerAnswer,
    GangIndex,
    KeptIndex,
    NodeRequests,
    PlacedPods,
    counted_cpu,
    put,
    removed,
    with_cpu,
    with_uid,
)
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import DeviceQuota
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_groups import NEVER, PodGroup, with_group_priority
from extender.cluster.objects.pods import GangKey, Keeping, Pod
from extender.kube.api import ObjectKey

_T = TypeVar("_T")

_NO_OBJECTS: Final[Map[Any, Any]] = Map()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for an object that can't be read, or that an API server would not take, with the problem."""

    problem: str
    is_refused: bool = False

    def __str__(self) -> str:
        return f"refused: {self.problem}" if self.is_refused else self.problem


THE_POD: Final = "the pod"
"""In place of the name of a pod that evicts nobody: the pod itself says so."""


class Snapshot(NamedTuple):
    """A cluster at one moment. Compare snapshots with ``is``; ``==`` compares all objects.

    A tuple, because each event makes several copies: copying a data class takes five times as long.

    Attributes:
        version: counts the changes of the cluster; a fork keeps the version of its origin.
        claims: by namespace and name; `claim_keys` finds them by uid.
        allocated_in: namespace to its allocated claims, by uid, with their allocations; the same object while they are
            the same.
        pods: those that may need devices, by namespace and name; `pod_keys` finds them by uid.
        bound: node name to the uids of the pods that are bound to it.
        nominated: node name to the uids of the pending pods that are nominated to it.
        kept: what is kept for nominated pods by name.
        woken: the pending pods that were woken and for which this process keeps devices, by uid; each looks like a
            nominated pod. `nominated` and `kept` have these pods, too. `pods` has each as the watch shows it.
        gangs: the pods of each gang.
        has_group_claims: whether claims may be reserved for PodGroups.
        requested: node name to the CPU that its pods request, in thousandths of a core; None: not counted.
        others: the pods without devices that have a node: the node and the CPU; None: their CPU is not counted.
        node_requests: what all pods request of their nodes; None: not counted.
        placed: all pods that have a node, whole; None: the conditions of kube-scheduler between pods are not known.
        quotas_in: namespace to its DeviceQuotas, by name.
        usage: what claims hold, by allocations and assumed allocations.
        holders: pool to the uids of the claims that hold something of it, also by assumed allocations.
        extended: extended resource name to the device class that serves it.
        controllers: device class to the controller that decides about its requests; classes without one left out.
        answers: what controllers have said about claims, by uid of the claim. No change of them counts as a version.
        special: uid of a pod to the uids of the claims that were made for its extended resources.
        assumed: by uid of the claim.
        keeping: what is about to be kept for pods, by uid; the watch may show it already.
        plain: the objects of kinds without an attribute here, by class; `objects` reads them.
        problems: kind and key of an object that cannot be read, to the problem.
    """

    version: int = 0
    nodes: Map[str, NodeObject] = Map()
    classes: Map[str, DeviceClass] = Map()
    claims: Map[ObjectKey, ClaimObject] = Map()
    claim_keys: Map[str, ObjectKey] = Map()
    allocated_in: Map[str, Map[str, AllocationResult]] = Map()
    pods: Map[ObjectKey, Pod] = Map()
    pod_keys: Map[str, ObjectKey] = Map()
    bound: Map[str, Map[str, None]] = Map()
    nominated: Map[str, Map[str, None]] = Map()
    kept: KeptIndex = KeptIndex()
    woken: Map[str, Pod] = Map()
    gangs: GangIndex = GangIndex()
    has_group_claims: bool = False
    requested: Map[str, int] | None = None
    others: Map[ObjectKey, tuple[str, int]] | None = None
    node_requests: NodeRequests | None = None
    placed: PlacedPods | None = None
    device_quotas: Map[ObjectKey, DeviceQuota] = Map()
    quotas_in: Map[str, Map[str, DeviceQuota]] = Map()
    inventory: Inventory = Inventory()
    rules: Map[str, TaintRule] = Map()
    taint_rules: TaintRules = NO_RULES
    extended: Map[str, str] = Map()
    controllers: Map[str, str] = Map()
    answers: Map[str, ControllerAnswer] = Map()
    special: Map[str, Map[str, None]] = Map()
    usage: Usage = Usage()
    holders: Map[PoolId, Map[str, None]] = Map()
    assumed: Map[str, AssumedAllocation] = Map()
    keeping: Map[str, AssumedNomination] = Map()
    plain: Map[type, Map[Any, Any]] = Map()
    problems: Map[tuple[str, ObjectKey], Unreadable] = Map()

    # --- questions ------------------------------------------------------------------------------------------

    def objects(self, kind: type[_T]) -> Map[Any, _T]:
        """All objects of a kind that has no attribute here, as ``objects(Budget)``.

        By ObjectKey, or by name if the kind has no namespaces. The same map while the objects are the same.
        """
        return self.plain.get(kind, _NO_OBJECTS)

    def node(self, name: str) -> Node | None:
        """The node of that name, as the allocator sees it."""
        found = self.nodes.get(name)
        return None if found is None else found.node

    def cpu_left(self, name: str) -> int | None:
        """The CPU of a node that no counted pod requests, in thousandths of a core; None: not known."""
        return self.cpu_left_on((name,))[0]

    def cpu_left_on(self, names: Sequence[str]) -> Sequence[int | None]:
        """`cpu_left` of each node."""
        requested = self.requested
        if requested is None:
            return [None] * len(names)
        found = zip(names, map(self.nodes.get, names), strict=True)
        return [None if node is None or node.cpu is None else node.cpu - requested.get(name, 0) for name, node in found]

    def node_of(self, key: ObjectKey) -> str:
        """The node of a pod that is kept or counted; empty if there is none."""
        pod, other = self.pods.get(key), self._other(key)
        return other[0] if other else pod.node_name if pod else ""

    def _other(self, key: ObjectKey) -> tuple[str, int] | None:
        return None if self.others is None else self.others.get(key)

    def claim(self, uid: str) -> ClaimObject | None:
        """The claim of that uid."""
        key = self.claim_keys.get(uid)
        return None if key is None else self.claims[key]

    def pod(self, uid: str) -> Pod | None:
        """The pod of that uid."""
        key = self.pod_keys.get(uid)
        return None if key is None else self.pods[key]

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """The pods with devices that are bound to a node, by uid."""
        return tuple(self.pods[self.pod_keys[uid]] for uid in sorted(self.bound.get(node, ())))

    def nominated_to(self, node: str) -> tuple[Pod, ...]:
        """The pending pods with devices that are nominated to a node, by uid, as `nominee` has them."""
        return tuple(self.nominee(self.pods[self.pod_keys[uid]]) for uid in sorted(self.nominated.get(node, ())))

    def nominee(self, pod: Pod) -> Pod:
        """A pod with what is kept from others for it, also if it was only woken for that."""
        return self.woken.get(pod.uid, pod) if self.woken else pod

    def special_claims(self, pod_uid: str) -> tuple[ClaimObject, ...]:
        """The special claims of a pod, by uid: one, unless a crash has left another."""
        return tuple(self.claims[self.claim_keys[uid]] for uid in sorted(self.special.get(pod_uid, ())))

    def held_by(self, uid: str) -> tuple[AllocationResult, ...]:
        """What a claim holds: its allocation, and its assumed allocation if that differs."""
        claim, assumed_allocation = self.claim(uid), self.assumed.get(uid)
        shown = None if claim is None else claim.claim.allocation
        found = [] if shown is None else [shown]
        if assumed_allocation is not None and (shown is None or not same_devices(shown, assumed_allocation.allocation)):
            found.append(assumed_allocation.allocation)
        return tuple(found)

    def moved_pools(self, uid: str, before: "Snapshot") -> frozenset[PoolId]:
        """The pools whose devices a claim holds here and did not in a snapshot before, or the other way round."""
        old, new = before.held_by(uid), self.held_by(uid)
        if len(old) == len(new) and all(map(same_devices, old, new)):
            return frozenset()
        return _pools((*old, *new))

    # --- forks ----------------------------------------------------------------------------------------------

    def with_node(self, node: NodeObject) -> "Snapshot":
        """A snapshot with a node added or replaced."""
        return self._replace(nodes=self.nodes.set(node.name, node))

    def without_node(self, name: str) -> "Snapshot":
        """A snapshot without a node."""
        return self._replace(nodes=self.nodes.delete(name)) if name in self.nodes else self

    def with_slice(self, new: Slice) -> "Snapshot":
        """A snapshot with a slice added or replaced."""
        return self._replace(inventory=self.inventory.with_slice(new))

    def without_slice(self, name: str) -> "Snapshot":
        """A snapshot without a slice."""
        return self._replace(inventory=self.inventory.without_slice(name))

    def with_class(self, new: DeviceClass) -> "Snapshot":
        """A snapshot with a device class added or replaced."""
        return self._with_classes(new.name, self.classes.set(new.name, new))

    def without_class(self, name: str) -> "Snapshot":
        """A snapshot without a device class."""
        return self._with_classes(name, self.classes.delete(name)) if name in self.classes else self

    def with_rule(self, new: TaintRule) -> "Snapshot":
        """A snapshot with a taint rule added or replaced."""
        if self.rules.get(new.name) == new:  # While pods are evicted, a controller writes the rule's status often.
            return self
        return self._with_rules(self.rules.set(new.name, new))

    def without_rule(self, name: str) -> "Snapshot":
        """A snapshot without a taint rule."""
        return self._with_rules(self.rules.delete(name)) if name in self.rules else self

    def with_pod(self, pod: Pod) -> "Snapshot":
        """A snapshot with a pod added or replaced."""
        pod = self.with_rank(pod)
        key, before = pod.key, self.woken.get(pod.uid) if self.woken else None
        base = self.without_pod(key)
        bound = base.bound
        if pod.node_name:
            bound = with_uid(bound, pod.node_name, pod.uid)
        elif pod.nominated_node:
            base = base._with_nominee(pod)
        elif before is not None and pod.is_pending:
            woken = replace(pod, nominated_node=before.nominated_node, kept=before.kept)
            base = base._with_nominee(woken)._replace(woken=base.woken.set(pod.uid, woken))
        return base._replace(
            pods=base.pods.set(key, pod),
            pod_keys=base.pod_keys.set(pod.uid, key),
            bound=bound,
            gangs=base.gangs.with_pod(pod),
            requested=with_cpu(base.requested, pod.node_name, 0 if pod.is_finished else pod.cpu),
            node_requests=None if self.node_requests is None else self.node_requests.with_pod(pod),
            placed=None if self.placed is None else self.placed.with_pod(pod),
        )

    def with_rank(self, pod: Pod) -> Pod:
        """A pod, with the priority of its PodGroup if that has one."""
        return with_group_priority(pod, self._group_of(pod)) if pod.pod_group else pod

    def never_preempts(self, pod: Pod) -> str:
        """The object whose ``preemptionPolicy`` says that no pod is evicted for a pod; empty: none does.

        That of its PodGroup counts, if that has one. Of a group without, no waiting pod may say so: kube-scheduler
        1.37 evicts for the group as a whole.
        """
        group = self._group_of(pod) if pod.pod_group else None
        if group is not None and group.policy:
            return f"PodGroup {group.name}" if group.policy == NEVER else ""
        if not pod.may_preempt:
            return THE_POD
        if group is None or group.priority is None:
            return ""
        members = map(self.pod, self.gangs.members.get(GangKey(pod.namespace, pod.pod_group, is_pod_group=True), ()))
        waiting = (each for each in members if each is not None and each.is_pending and not each.may_preempt)
        return next((f"pod {each.name} of PodGroup {group.name}" for each in waiting), "")

    def _group_of(self, pod: Pod) -> PodGroup | None:
        return self.objects(PodGroup).get(ObjectKey(pod.namespace, pod.pod_group))

    def with_woken(self, uid: str, kept: Keeping) -> "Snapshot":
        """A snapshot with devices kept for a pod that is woken for them, unless the pod is nominated already."""
        pod = self.pod(uid)
        if pod is None or not pod.is_pending or pod.nominated_node:
            return self
        base = self.without_woken(uid)
        woken = replace(pod, nominated_node=kept.node, kept=kept)
        return base._with_nominee(woken)._replace(woken=base.woken.set(uid, woken))

    def without_woken(self, uid: str) -> "Snapshot":
        """Without what is kept for a pod because it was woken for it."""
        pod = self.pod(uid)
        if pod is None or uid not in self.woken:
            return self
        return self._without_nominee(self.woken[uid])._replace(woken=self.woken.delete(uid))

    def _with_nominee(self, pod: Pod) -> "Snapshot":
        nominated = with_uid(self.nominated, pod.nominated_node, pod.uid)
        return self._replace(nominated=nominated, kept=self.kept.with_pod(pod, self.usage))

    def _without_nominee(self, pod: Pod) -> "Snapshot":
        if pod.uid not in self.nominated.get(pod.nominated_node, ()):
            return self  # a fork in which what nominated pods have is held, and nobody is nominated
        nominated = removed(self.nominated, pod.nominated_node, pod.uid)
        return self._replace(nominated=nominated, kept=self.kept.without_pod(pod, self.usage))

    def with_other(self, pod: Pod) -> "Snapshot":
        """A snapshot with what counts of a pod without devices: its CPU, if that is counted, and its PodGroup."""
        base = self.without_pod(pod.key)
        if self.node_requests is not None:
            base = base._replace(node_requests=self.node_requests.with_pod(pod))
        if self.placed is not None:
            base = base._replace(placed=self.placed.with_pod(pod))
        base = base if pod.gang is None else base._replace(gangs=base.gangs.with_pod(pod))
        return base._counting(pod.key, counted_cpu(pod.node_name, pod.cpu, is_finished=pod.is_finished))

    def with_counted(self, key: ObjectKey, counted: tuple[str, int] | None) -> "Snapshot":
        """A snapshot with the node and the CPU of a pod without devices, if that is counted; None: nothing counts."""
        if self._other(key) == counted:
            return self
        return self.without_pod(key)._counting(key, counted)

    def _counting(self, key: ObjectKey, counted: tuple[str, int] | None) -> "Snapshot":
        if self.others is None or counted is None:
            return self
        return self._replace(requested=with_cpu(self.requested, *counted), others=self.others.set(key, counted))

    def with_all_counted(self, others: Map[ObjectKey, tuple[str, int]]) -> "Snapshot":
        """A snapshot with these pods without devices in place of all others, if their CPU is counted."""
        if self.others is None or self.requested is None:
            return self
        moved: Counter[str] = Counter()
        for sign, pods in ((-1, self.others), (1, others)):
            for node, cpu in pods.values():
                moved[node] += sign * cpu
        requested: Map[str, int] | None = self.requested
        for node, cpu in moved.items():
            requested = with_cpu(requested, node, cpu)
        return self._replace(requested=requested, others=others)

    def without_pod(self, key: ObjectKey) -> "Snapshot":
        """A snapshot without a pod; the claims of the pod stay."""
        requests = self.node_requests
        if requests is not None and key in requests.pods:
            return self._replace(node_requests=requests.without_pod(key)).without_pod(key)
        if self.placed is not None and key in self.placed.pods:
            return self._replace(placed=self.placed.without_pod(key)).without_pod(key)
        gangs = self.gangs.without_pod(key) if key in self.gangs.places else self.gangs
        pod = self.pods.get(key)
        if pod is None:
            base, other = self if gangs is self.gangs else self._replace(gangs=gangs), self._other(key)
            if self.others is None or other is None:
                return base
            return base._replace(
                requested=with_cpu(self.requested, other[0], -other[1]), others=self.others.delete(key)
            )
        base, pods, keys, bound = self, self.pods.delete(key), self.pod_keys.delete(pod.uid), self.bound
        if pod.node_name:
            bound = removed(bound, pod.node_name, pod.uid)
        elif pod.nominated_node or pod.uid in self.woken:
            base = self._without_nominee(self.nominee(pod))
            base = base._replace(woken=self.woken.delete(pod.uid)) if pod.uid in self.woken else base
        requested = with_cpu(self.requested, pod.node_name, 0 if pod.is_finished else -pod.cpu)
        return base._replace(pods=pods, pod_keys=keys, bound=bound, gangs=gangs, requested=requested)

    def with_claim(self, claim: ClaimObject) -> "Snapshot":
        """A snapshot with a claim added or replaced, and its devices taken."""
        base, key, uid, special_of = self, claim.key, claim.claim.uid, claim.special_of
        old = self.claims.get(key)
        if old is not None and (old.claim.uid, old.special_of) != (uid, special_of):
            base = self.without_claim(key)
        special, allocated_in = base.special, base.allocated_in
        now, before = claim.claim.allocation, allocated_in.get(key.namespace, Map()).get(uid)
        if now is None and before is not None:
            allocated_in = removed(allocated_in, key.namespace, uid)
        elif now is not None and now != before:
            allocated_in = put(allocated_in, key.namespace, uid, now)
        if special_of:
            special = with_uid(special, special_of, uid)
        claims, keys = base.claims.set(key, claim), base.claim_keys.set(uid, key)
        after = base._replace(claims=claims, claim_keys=keys, special=special, allocated_in=allocated_in)
        return after._moved(uid, base.held_by(uid))

    def without_claim(self, key: ObjectKey) -> "Snapshot":
        """A snapshot without a claim, and with its devices free; its assumed allocation stays."""
        claim = self.claims.get(key)
        if claim is None:
            return self
        uid, special, allocated_in = claim.claim.uid, self.special, self.allocated_in
        if claim.special_of:
            special = removed(special, claim.special_of, uid)
        if claim.claim.allocation is not None:
            allocated_in = removed(allocated_in, key.namespace, uid)
        claims, keys = self.claims.delete(key), self.claim_keys.delete(uid)
        after = self._replace(claims=claims, claim_keys=keys, special=special, allocated_in=allocated_in)
        return after._moved(uid, self.held_by(uid))

    def assuming(self, assumed_allocation: AssumedAllocation) -> "Snapshot":
        """A snapshot with an assumed allocation, in place of the claim's earlier one."""
        after = self._replace(assumed=self.assumed.set(assumed_allocation.claim_uid, assumed_allocation))
        return after._moved(assumed_allocation.claim_uid, self.held_by(assumed_allocation.claim_uid))

    def without_assumed(self, claim_uid: str) -> "Snapshot":
        """Without the assumed allocation of a claim."""
        if claim_uid not in self.assumed:
            return self
        after = self._replace(assumed=self.assumed.delete(claim_uid))
        return after._moved(claim_uid, self.held_by(claim_uid))

    def without_ended(self, claim_uid: str) -> "Snapshot":
        """After an event of a claim: without its assumed allocation, if that has ended.

        It has ended if the claim is gone, shows the allocation, or shows a revision from which the outcome is certain.
        """
        assumed_allocation = self.assumed.get(claim_uid)
        if assumed_allocation is None:
            return self
        claim = self.claim(claim_uid)
        if claim is not None:
            shown = claim.claim.allocation
            landed = shown is not None and same_devices(shown, assumed_allocation.allocation)
            if not landed and (assumed_allocation.ends_at is None or claim.revision < assumed_allocation.ends_at):
                return self
        return self.without_assumed(claim_uid)

    def with_device_quota(self, quota: DeviceQuota) -> "Snapshot":
        """A snapshot with a DeviceQuota added or replaced."""
        quotas_in = put(self.quotas_in, quota.namespace, quota.name, quota)
        return self._replace(device_quotas=self.device_quotas.set(quota.key, quota), quotas_in=quotas_in)

    def without_device_quota(self, key: ObjectKey) -> "Snapshot":
        """A snapshot without a DeviceQuota."""
        if key not in self.device_quotas:
            return self
        quotas_in = removed(self.quotas_in, key.namespace, key.name)
        return self._replace(device_quotas=self.device_quotas.delete(key), quotas_in=quotas_in)

    def with_objects(self, kind: type[_T], objects: Map[Any, _T]) -> "Snapshot":
        """A snapshot with other objects of a kind that has no attribute here."""
        if objects:
            return self._replace(plain=self.plain.set(kind, objects))
        return self._replace(plain=self.plain.delete(kind)) if kind in self.plain else self

    def with_problem(self, kind: str, key: ObjectKey, problem: Unreadable) -> "Snapshot":
        """A snapshot that knows of an object that can't be read."""
        return self._replace(problems=self.problems.set((kind, key), problem))

    def without_problem(self, kind: str, key: ObjectKey) -> "Snapshot":
        """Without a problem of an object."""
        at = (kind, key)
        return self._replace(problems=self.problems.delete(at)) if at in self.problems else self

    # --- indexes --------------------------------------------------------------------------------------------

    def _with_classes(self, name: str, classes: Map[str, DeviceClass]) -> "Snapshot":
        changed = [c for c in (self.classes.get(name), classes.get(name)) if c is not None]
        extended = self.extended
        for resource in {c.extended_resource_name for c in changed if c.extended_resource_name}:
            serving = [c for c in classes.values() if c.extended_resource_name == resource and not c.controller]
            if serving:
                extended = extended.set(resource, _preferred(serving).name)
            elif resource in extended:
                extended = extended.delete(resource)
        controllers, now = self.controllers, classes.get(name)
        if now is not None and now.controller:
            controllers = controllers.set(name, now.controller)
        elif name in controllers:
            controllers = controllers.delete(name)
        return self._replace(classes=classes, extended=extended, controllers=controllers)

    def _with_rules(self, rules: Map[str, TaintRule]) -> "Snapshot":
        return self._replace(rules=rules, taint_rules=TaintRules.of(rules.values()))

    def _moved(self, uid: str, before: tuple[AllocationResult, ...]) -> "Snapshot":
        """A snapshot with usage and holders updated, after a claim that held ``before`` has changed."""
        after = self.held_by(uid)
        if [each.results for each in after] == [each.results for each in before]:
            return self
        usage, holders = self.usage, self.holders
        for allocation in before:
            usage = usage.without_allocation(allocation)
        for allocation in after:
            usage = usage.with_allocation(allocation)
        old, new = _pools(before), _pools(after)
        for pool in old - new:
            holders = removed(holders, pool, uid)
        for pool in new - old:
            holders = with_uid(holders, pool, uid)
        devices = (each.device for allocation in (*before, *after) for each in allocation.results)
        return self._replace(usage=usage, holders=holders, kept=self.kept.seen(devices, usage))


EMPTY = Snapshot()
"""An empty cluster."""


def same_devices(one: AllocationResult, other: AllocationResult) -> bool:
    """Whether two allocations hold the same devices and shares."""
    return _devices_held_by(one) == _devices_held_by(other)


def pools_of(allocation: AllocationResult | None) -> frozenset[PoolId]:
    """The pools that an allocation holds something of."""
    return _pools(() if allocation is None else (allocation,))


def quotas_of(namespace: str, snapshot: Snapshot) -> tuple[DeviceQuota, ...]:
    """The DeviceQuotas of a namespace, by name."""
    found = snapshot.quotas_in.get(namespace)
    return () if found is None else tuple(sorted(found.values(), key=lambda quota: quota.name))


def _devices_held_by(allocation: AllocationResult) -> set[tuple[DeviceId, str | None]]:
    return {(r.device, r.share_id) for r in allocation.results if not r.admin_access}


def _pools(allocations: tuple[AllocationResult, ...]) -> frozenset[PoolId]:
    return frozenset(r.device.pool_id for a in allocations for r in a.results if not r.admin_access)


def _preferred(classes: list[DeviceClass]) -> DeviceClass:
    """The class that serves an extended resource: the newest, then the first by name."""
    newest = max(c.created for c in classes)
    return min((c for c in classes if c.created == newest), key=lambda c: c.name)
