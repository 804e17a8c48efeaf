"""The registry of watched kinds: how an object is read, where a snapshot has it, and what a change of it concerns.

A new kind is a `Resource` in `extender.kube.resources`, a module with its value and its parser in
`extender.cluster.objects`, and a topic and an entry here; `Snapshot.objects` has its objects. `deploy/rbac.yaml` must
allow to watch it. Only a kind for which a snapshot keeps an index has attributes of its own there. `fields.json` of
`allocator.model.validation` has the fields of each kind that manifests may have.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from immutables import Map

from allocator import ClaimTemplate, Slice, parse_device_class, parse_slice, parse_taint_rule
from allocator.model.json import Interner
from extender.cluster.objects.budgets import Budget, parse_budget
from extender.cluster.objects.claims import SpecCache, parse_claim_object, parse_template_object
from extender.cluster.objects.device_quotas import parse_device_quota
from extender.cluster.objects.kueue import (
    AdmissionCheck,
    ResourceFlavor,
    Workload,
    parse_admission_check,
    parse_flavor,
    parse_workload,
)
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.objects.pod_groups import PodGroup, parse_pod_group
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.objects.resource_classes import ResourceClass, parse_resource_class
from extender.cluster.objects.scheduling_contexts import SchedulingContext, parse_scheduling_context
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import check_expression
from extender.kube.resources import (
    ADMISSION_CHECKS,
    BUDGETS,
    CLAIMS,
    CLASSES,
    CONTEXTS,
    DEVICE_QUOTAS,
    FLAVORS,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLASSES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    WORKLOADS,
    Resource,
)

_T = TypeVar("_T")

Touched: TypeAlias = "Iterable[tuple[Topic, Hashable]]"


class Concern(Flag):
    """The things that a change of an object can alter. Readers pass over changes that alter nothing for them."""

    NOTHING = 0
    DECISIONS = auto()
    """What is decided for claims that exist: a bind decides again, unless it knows that this object is not read."""
    KEPT = auto()
    """What nominated pods get of what is kept for them by name."""
    REJECTED = auto()
    """Whether a rejected pod fits: it is judged again, on all nodes unless it is known on which of them."""
    VICTIMS = auto()
    """Which pods may be evicted for a pod: victims are chosen again after a choice that found none."""
    EVERYTHING = DECISIONS | KEPT | REJECTED | VICTIMS


class Topic(Enum):
    """The subject of a change, and what the change concerns. The texts below say by what key.

    Attributes:
        alters_decisions, alters_kept, helps_rejected, alters_victims: a `Concern` each.
    """

    NODE = "node", Concern.EVERYTHING
    """By name: its labels, features or device plugins' resources."""
    CPU = "cpu", Concern.NOTHING
    """By name of a node: what its pods request; never mentioned unless CPU is counted."""
    POOL = "pool", Concern.EVERYTHING
    """By PoolId: its slices, or what is held of it."""
    CLASS = "class", Concern.EVERYTHING
    """By name."""
    TAINT_RULE = "taint rule", Concern.EVERYTHING
    """By name."""
    CLAIM = "claim", Concern.EVERYTHING
    """By ObjectKey."""
    TEMPLATE = "template", Concern.KEPT
    """By ObjectKey."""
    POD = "pod", Concern.EVERYTHING
    """By ObjectKey; pods without devices are never mentioned."""
    BUDGET = "budget", Concern.NOTHING
    """By ObjectKey. Budgets make no pod a victim, and protect none: they only say which victims are better."""
    POD_GROUP = "pod group", Concern.KEPT
    """By ObjectKey."""
    DEVICE_QUOTA = "device quota", Concern.KEPT | Concern.REJECTED | Concern.VICTIMS
    """By ObjectKey; a change of its status alone is never mentioned. Quota is compared after the decision."""
    RESOURCE_CLASS = "resource class", Concern.NOTHING
    """By name. The device class that is made of it counts."""
    ADMISSION_CHECK = "admission check", Concern.NOTHING
    """By name."""
    FLAVOR = "resource flavor", Concern.NOTHING
    """By name. It counts for jobs that are not admitted yet: once there are pods, these say where they may run."""
    WORKLOAD = "workload", Concern.NOTHING
    """By ObjectKey. Its pods count once they are there."""
    CONTEXT = "pod scheduling context", Concern.NOTHING
    """By ObjectKey. What controllers have answered counts once negotiation has read it."""

    __hash__ = object.__hash__  # a member is equal to itself alone; that of Enum is written in Python

    def __init__(self, _: str, concern: Concern) -> None:
        self.alters_decisions = Concern.DECISIONS in concern
        self.alters_kept = Concern.KEPT in concern
        self.helps_rejected = Concern.REJECTED in concern
        self.alters_victims = Concern.VICTIMS in concern


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[_T]):
    """One kind of object in a snapshot.

    Attributes:
        parse: raises InvalidObjectError.
        objects: all objects in a snapshot: by name if the kind has no namespaces, else by ObjectKey.
        touched: what changes when the object of that key changes from one value (None: absent) to another.
        parts: what of a snapshot this kind alone fills: attributes, or the class of its `Snapshot.objects`.
        others: objects that a snapshot counts without keeping them, by ObjectKey.
    """

    resource: Resource
    parse: Callable[[Mapping[str, object]], _T]
    objects: Callable[[Snapshot], Mapping[Any, _T]]
    put: Callable[[Snapshot, ObjectKey, _T], Snapshot]
    drop: Callable[[Snapshot, ObjectKey], Snapshot]
    touched: Callable[[ObjectKey, _T | None, _T | None], Touched]
    parts: tuple[str | type, ...]
    others: Callable[[Snapshot], Iterable[ObjectKey]] = lambda _: ()

    def find(self, snapshot: Snapshot, key: ObjectKey) -> _T | None:
        """The object of that key."""
        return self.objects(snapshot).get(key if self.resource.namespaced else key.name)

    def count(self, snapshot: Snapshot) -> int:
        """The number of objects."""
        return len(self.objects(snapshot))

    def keys(self, snapshot: Snapshot) -> list[ObjectKey]:
        """The keys of all objects, also of those that are only counted."""
        found = self.objects(snapshot)
        return [*found, *self.others(snapshot)] if self.resource.namespaced else [ObjectKey("", name) for name in found]

    def is_same(self, one: Snapshot, other: Snapshot) -> bool:
        """Whether two snapshots of one history have the same objects of this kind."""
        return all(_part(one, part) is _part(other, part) for part in self.parts)

    def taken(self, one: Snapshot, other: Snapshot) -> Snapshot:
        """The first snapshot, with this kind's objects of the second; both began with the same."""
        for part in self.parts:
            if isinstance(part, type):
                one = one.with_objects(part, other.objects(part))
        return one._replace(**{part: getattr(other, part) for part in self.parts if isinstance(part, str)})


def all_kinds(parse_pod: Callable[[Mapping[str, object]], Pod] = parse_pod) -> Mapping[str, WatchedKind[Any]]:
    """The kinds by name. All slices that they parse share equal values, and all claims share equal specs."""
    kinds: tuple[WatchedKind[Any], ...] = (
        _indexed(NODES, parse_node_object, Topic.NODE, "nodes", put=Snapshot.with_node, drop=Snapshot.without_node),
        _pods(parse_pod),
        _indexed(
            CLAIMS,
            partial(parse_claim_object, read_spec=SpecCache().read),
            Topic.CLAIM,
            *("claims", "claim_keys", "allocated_in", "special", "usage", "holders", "assumed"),
            put=Snapshot.with_claim,
            drop=Snapshot.without_claim,
        ),
        _plain(TEMPLATES, ClaimTemplate, parse_template_object, Topic.TEMPLATE),
        _slices(),
        _indexed(
            CLASSES,
            parse_device_class,
            Topic.CLASS,
            *("classes", "extended", "controllers"),
            put=Snapshot.with_class,
            drop=Snapshot.without_class,
        ),
        _indexed(
            TAINT_RULES,
            parse_taint_rule,
            Topic.TAINT_RULE,
            *("rules", "taint_rules"),
            put=Snapshot.with_rule,
            drop=Snapshot.without_rule,
        ),
        _plain(BUDGETS, Budget, parse_budget, Topic.BUDGET),
        _plain(POD_GROUPS, PodGroup, parse_pod_group, Topic.POD_GROUP),
        _indexed(
            DEVICE_QUOTAS,
            partial(parse_device_quota, check_expression=check_expression),
            Topic.DEVICE_QUOTA,
            *("device_quotas", "quotas_in"),
            put=Snapshot.with_device_quota,
            drop=Snapshot.without_device_quota,
        ),
        _plain(RESOURCE_CLASSES, ResourceClass, parse_resource_class, Topic.RESOURCE_CLASS),
        _plain(CONTEXTS, SchedulingContext, parse_scheduling_context, Topic.CONTEXT),
        _plain(ADMISSION_CHECKS, AdmissionCheck, parse_admission_check, Topic.ADMISSION_CHECK),
        _plain(FLAVORS, ResourceFlavor, parse_flavor, Topic.FLAVOR),
        _plain(WORKLOADS, Workload, parse_workload, Topic.WORKLOAD),
    )
    return {kind.resource.kind: kind for kind in kinds}


def _plain(
    resource: Resource, value: type[_T], parse: Callable[[Mapping[str, object]], _T], topic: Topic
) -> WatchedKind[_T]:
    """A kind whose objects a snapshot has in `Snapshot.objects`, and nothing else."""

    def objects(snapshot: Snapshot) -> Map[Any, _T]:
        return snapshot.objects(value)

    def drop(snapshot: Snapshot, key: ObjectKey) -> Snapshot:
        found, place = objects(snapshot), _place(resource, key)
        return snapshot.with_objects(value, found.delete(place)) if place in found else snapshot

    return WatchedKind(
        resource,
        parse,
        objects=objects,
        put=lambda snapshot, key, new: snapshot.with_objects(value, objects(snapshot).set(_place(resource, key), new)),
        drop=drop,
        touched=lambda key, _old, _new: ((topic, _place(resource, key)),),
        parts=(value,),
    )


def _indexed(
    resource: Resource,
    parse: Callable[[Mapping[str, object]], _T],
    topic: Topic,
    *parts: str,
    put: Callable[[Snapshot, _T], Snapshot],
    drop: Callable[[Snapshot, Any], Snapshot],
) -> WatchedKind[_T]:
    """A kind with attributes of a snapshot that it alone fills: its objects are the first one, the others indexes."""
    return WatchedKind(
        resource,
        parse,
        objects=attrgetter(parts[0]),
        put=lambda snapshot, _, new: put(snapshot, new),
        drop=lambda snapshot, key: drop(snapshot, _place(resource, key)),
        touched=lambda key, _old, _new: ((topic, _place(resource, key)),),
        parts=parts,
    )


def _part(snapshot: Snapshot, part: str | type) -> object:
    return getattr(snapshot, part) if isinstance(part, str) else snapshot.objects(part)


def _place(resource: Resource, key: ObjectKey) -> ObjectKey | str:
    return key if resource.namespaced else key.name


def _pods(parse: Callable[[Mapping[str, object]], Pod]) -> WatchedKind[Pod]:
    """Pods. No change of a pod without devices is mentioned: most pods of a cluster have none."""

    def touched(key: ObjectKey, old: Pod | None, new: Pod | None) -> Touched:
        return ((Topic.POD, key),) if any(pod is not None and pod.needs_devices for pod in (old, new)) else ()

    return WatchedKind(
        PODS,
        parse,
        objects=lambda snapshot: snapshot.pods,
        put=lambda snapshot, _, pod: snapshot.with_pod(pod) if pod.needs_devices else snapshot.with_other(pod),
        drop=Snapshot.without_pod,
        touched=touched,
        others=_counted,
        parts=(
            *("pods", "pod_keys", "bound", "nominated", "kept", "woken", "gangs"),
            *("requested", "others", "node_requests", "placed"),
        ),
    )


def _counted(snapshot: Snapshot) -> set[ObjectKey]:
    """The pods that are counted, whether they are kept or not."""
    requests = snapshot.node_requests
    places = snapshot.gangs.places
    placed = () if snapshot.placed is None else snapshot.placed.pods
    return {*(snapshot.others or ()), *places, *(() if requests is None else requests.pods), *placed}


def _slices() -> WatchedKind[Slice]:
    interner = Interner()

    def parse(obj: Mapping[str, object]) -> Slice:
        interner.trim()
        return parse_slice(obj, interner)

    return WatchedKind(
        SLICES,
        parse,
        objects=lambda snapshot: snapshot.inventory.slices,
        put=lambda snapshot, _, new: snapshot.with_slice(new),
        drop=lambda snapshot, key: snapshot.without_slice(key.name),
        touched=lambda _, old, new: {(Topic.POOL, each.pool) for each in (old, new) if each is not None},
        parts=("inventory",),
    )
