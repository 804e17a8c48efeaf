"""Per kind of object: how it is read, where a snapshot has it, and what changes with it."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from allocator import Interner, Slice, parse_claim_template, parse_device_class, parse_slice, parse_taint_rule
from extender.kube.api import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    ObjectKey,
    Resource,
)
from extender.state.budgets import parse_budget
from extender.state.changes import Topic
from extender.state.objects import Pod, parse_claim_object, parse_node_object, parse_pod
from extender.state.snapshot import Snapshot
from extender.state.spec_cache import SpecCache

_T = TypeVar("_T")

Touched: TypeAlias = Iterable[tuple[Topic, Hashable]]


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """One kind of object in a snapshot.

    Attributes:
        parse: raises InvalidObjectError.
        touched: what changes when the object of that key changes from one value (None: absent) to another.
        parts: of a snapshot, that objects of this kind make and those of no other; problems aside.
    """

    resource: Resource
    parse: Callable[[Mapping[str, object]], _T]
    find: Callable[[Snapshot, ObjectKey], _T | None]
    put: Callable[[Snapshot, ObjectKey, _T], Snapshot]
    drop: Callable[[Snapshot, ObjectKey], Snapshot]
    keys: Callable[[Snapshot], Iterable[ObjectKey]]
    count: Callable[[Snapshot], int]
    touched: Callable[[ObjectKey, _T | None, _T | None], Touched]
    parts: tuple[str, ...]

    def is_same(self, one: Snapshot, other: Snapshot) -> bool:
        """Whether nothing of this kind lies between two snapshots of one history."""
        return all(getattr(one, part) is getattr(other, part) for part in self.parts)


def all_kinds() -> Mapping[str, Kind[Any]]:
    """The kinds by name; each call's slices share equal values with each other, and its claims equal specs."""
    return {kind.resource.kind: kind for kind in (*_cluster_kinds(Interner()), *_namespaced_kinds())}


def _slice_reader(interner: Interner) -> Callable[[Mapping[str, object]], Slice]:
    def read(obj: Mapping[str, object]) -> Slice:
        interner.trim()
        return parse_slice(obj, interner)

    return read


def _cluster_kinds(interner: Interner) -> Iterable[Kind[Any]]:
    return (
        Kind(
            NODES,
            parse_node_object,
            find=lambda s, key: s.nodes.get(key.name),
            put=lambda s, _, node: s.with_node(node),
            drop=lambda s, key: s.without_node(key.name),
            keys=lambda s: _cluster_keys(s.nodes),
            count=lambda s: len(s.nodes),
            touched=partial(_named, Topic.NODE),
            parts=("nodes",),
        ),
        Kind(
            SLICES,
            _slice_reader(interner),
            find=lambda s, key: s.inventory.slices.get(key.name),
            put=lambda s, _, new: s.with_slice(new),
            drop=lambda s, key: s.without_slice(key.name),
            keys=lambda s: _cluster_keys(s.inventory.slices),
            count=lambda s: len(s.inventory.slices),
            touched=lambda _, old, new: {(Topic.POOL, each.pool) for each in (old, new) if each is not None},
            parts=("inventory",),
        ),
        Kind(
            CLASSES,
            parse_device_class,
            find=lambda s, key: s.classes.get(key.name),
            put=lambda s, _, new: s.with_class(new),
            drop=lambda s, key: s.without_class(key.name),
            keys=lambda s: _cluster_keys(s.classes),
            count=lambda s: len(s.classes),
            touched=partial(_named, Topic.CLASS),
            parts=("classes", "extended"),
        ),
        Kind(
            TAINT_RULES,
            parse_taint_rule,
            find=lambda s, key: s.rules.get(key.name),
            put=lambda s, _, rule: s.with_rule(rule),
            drop=lambda s, key: s.without_rule(key.name),
            keys=lambda s: _cluster_keys(s.rules),
            count=lambda s: len(s.rules),
            touched=partial(_named, Topic.TAINT_RULE),
            parts=("rules", "taint_rules"),
        ),
    )


def _namespaced_kinds() -> Iterable[Kind[Any]]:
    return (
        Kind(
            PODS,
            parse_pod,
            find=lambda s, key: s.pods.get(key),
            put=_put_pod,
            drop=lambda s, key: s.without_pod(key),
            keys=lambda s: list(s.pods),
            count=lambda s: len(s.pods),
            touched=_touched_pod,
            parts=("pods", "pod_keys", "bound", "nominated"),
        ),
        Kind(
            CLAIMS,
            partial(parse_claim_object, read_spec=SpecCache().read),
            find=lambda s, key: s.claims.get(key),
            put=lambda s, _, claim: s.with_claim(claim),
            drop=lambda s, key: s.without_claim(key),
            keys=lambda s: list(s.claims),
            count=lambda s: len(s.claims),
            touched=partial(_keyed, Topic.CLAIM),
            parts=("claims", "claim_keys", "special", "usage", "holders", "assumed"),
        ),
        Kind(
            TEMPLATES,
            parse_claim_template,
            find=lambda s, key: s.templates.get(key),
            put=lambda s, key, template: s.with_template(key, template),
            drop=lambda s, key: s.without_template(key),
            keys=lambda s: list(s.templates),
            count=lambda s: len(s.templates),
            touched=partial(_keyed, Topic.TEMPLATE),
            parts=("templates",),
        ),
        Kind(
            BUDGETS,
            parse_budget,
            find=lambda s, key: s.budgets.get(key),
            put=lambda s, _, budget: s.with_budget(budget),
            drop=lambda s, key: s.without_budget(key),
            keys=lambda s: list(s.budgets),
            count=lambda s: len(s.budgets),
            touched=partial(_keyed, Topic.BUDGET),
            parts=("budgets",),
        ),
    )


def _cluster_keys(names: Iterable[str]) -> list[ObjectKey]:
    return [ObjectKey("", name) for name in names]


def _named(topic: Topic, key: ObjectKey, _old: object, _new: object) -> Touched:
    return ((topic, key.name),)


def _keyed(topic: Topic, key: ObjectKey, _old: object, _new: object) -> Touched:
    return ((topic, key),)


def _put_pod(snapshot: Snapshot, key: ObjectKey, pod: Pod) -> Snapshot:
    """Pods that have nothing to do with devices are not kept: most pods of a cluster."""
    return snapshot.with_pod(pod) if pod.needs_devices else snapshot.without_pod(key)


def _touched_pod(key: ObjectKey, old: Pod | None, new: Pod | None) -> Touched:
    return ((Topic.POD, key),) if any(pod is not None and pod.needs_devices for pod in (old, new)) else ()
