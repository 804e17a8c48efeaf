"""Proposals as data: patches of the objects that a proposal changes, and commands that make the changes.

A patch is the difference between an object before and after the changes of a proposal, so it says what was tried. The
API server refuses changes of the specs of claims, templates and pods: a command then makes the object anew.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from allocator import AllocationMode, ClaimSpec, ConstraintSpec, DeviceRequest
from allocator.obstacles import RemedyKind
from allocator.tools import JSON
from extender.answers.explain.pod_claims import targets_of
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.extended_resources import RequestingContainer
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.planning.changes import ProposedChange

_API: Final = "resource.k8s.io/v1"

_BY_COMMANDS: Final = frozenset(RemedyKind) - {
    RemedyKind.REPAIR,
    RemedyKind.CONFIGURE,
    RemedyKind.MOVE,
    RemedyKind.ADD_NODE,
}
"""Kinds of changes that kubectl can make. The others are for drivers, administrators and autoscalers."""


@dataclass(frozen=True, slots=True)
class ObjectPatch:
    """The changes of one object.

    Attributes:
        resource: what kubectl calls the kind, with the version for which the patch is written.
        namespace: empty for a DeviceClass.
        is_json: a JSON Patch (RFC 6902); otherwise a strategic merge patch.
        body: the patch.
        command: makes the change, by kubectl; empty: the object belongs to a controller, which has to change.
    """

    api: str
    kind: str
    resource: str
    namespace: str
    name: str
    is_json: bool
    body: JSON
    command: str = ""

    def as_json(self) -> dict[str, JSON]:
        """The patch for programs."""
        return {
            "apiVersion": self.api,
            "kind": self.kind,
            "namespace": self.namespace or None,
            "name": self.name,
            "type": "json" if self.is_json else "strategic",
            "patch": self.body,
            "command": self.command or None,
        }


def patches_of(pod: Pod, before: Snapshot, after: Snapshot) -> tuple[ObjectPatch, ...]:
    """The objects that a proposal edits.

    Args:
        pod: the pod that does not fit.
        before: the cluster, with the pod's claims.
        after: the cluster after the changes.
    """
    return (*_of_claims(pod, before, after), *_of_classes(before, after), *_of_pod(pod, after))


def commands_of(changes: Sequence[ProposedChange], patches: Iterable[ObjectPatch], pod: Pod) -> tuple[str, ...]:
    """The commands that make all changes, in order; empty if kubectl cannot make them all."""
    known = list(patches)
    if any(each.kind not in _BY_COMMANDS for each in changes) or not all(each.command for each in known):
        return ()
    frees = (each.how for each in changes if each.kind is RemedyKind.FREE)
    found = [command for how in frees for command in how.split("; ")]
    found += [each.command for each in known]
    if any(each.kind == "ResourceClaimTemplate" for each in known):  # the claim that was made of it is the old one
        at = f"pod {shlex.quote(pod.name)} -n {pod.namespace}"
        anew = f"kubectl get {at} -o json | kubectl replace --force -f -"
        found.append(f"kubectl delete {at}" if pod.controller is not None else anew)
    return tuple(dict.fromkeys(found))


def _of_claims(pod: Pod, before: Snapshot, after: Snapshot) -> Iterator[ObjectPatch]:
    edited = [
        claim
        for key in claim_keys(pod)
        if (claim := before.claims.get(key)) is not None and _spec(after, claim) != claim.claim.spec
    ]
    for target in targets_of(pod, edited):
        if not target.is_written:
            continue
        kind, _, key = target.source.partition(" ")
        namespace, _, name = key.partition("/")
        path = "/spec/spec/devices" if kind == "ResourceClaimTemplate" else "/spec/devices"
        operations = [*_of_spec(path, target.claim.claim.spec, _spec(after, target.claim))]
        yield _patch(_API, kind, namespace, name, operations, is_mutable=False)


def _spec(cluster: Snapshot, claim: ClaimObject) -> ClaimSpec:
    found = cluster.claims.get(claim.key)
    return claim.claim.spec if found is None else found.claim.spec


def _of_spec(path: str, before: ClaimSpec, after: ClaimSpec) -> Iterator[JSON]:
    for number, (old, new) in enumerate(zip(before.requests, after.requests, strict=True)):
        for place, (way, edited) in enumerate(zip(old.alternatives, new.alternatives, strict=True)):
            at = f"firstAvailable/{place}" if old.prioritized else "exactly"
            yield from _of_request(f"{path}/requests/{number}/{at}", way, edited)
    if before.constraints != after.constraints:
        rest: list[JSON] = [_constraint(each) for each in after.constraints]
        yield _add(f"{path}/constraints", rest) if rest else {"op": "remove", "path": f"{path}/constraints"}


def _constraint(spec: ConstraintSpec) -> JSON:
    found: dict[str, JSON] = {spec.kind.value: spec.attribute} if spec.kind else {}
    return {"requests": [*spec.requests], **found} if spec.requests else found


def _of_request(path: str, before: DeviceRequest, after: DeviceRequest) -> Iterator[JSON]:
    yield from _of_selectors(path, before.selectors, after.selectors)
    if before.mode is not after.mode and after.mode is not None:
        yield _add(f"{path}/allocationMode", after.mode.value)
    if after.mode is AllocationMode.EXACT_COUNT and (before.count != after.count or before.mode is not after.mode):
        yield _add(f"{path}/count", after.count)
    if before.tolerations != after.tolerations:
        tolerations: list[JSON] = [
            {
                **({"key": each.key} if each.key else {}),
                "operator": each.operator,
                **({"value": each.value} if each.value else {}),
                **({"effect": each.effect} if each.effect else {}),
                **({} if each.toleration_seconds is None else {"tolerationSeconds": each.toleration_seconds}),
            }
            for each in after.tolerations
        ]
        yield _add(f"{path}/tolerations", tolerations)
    if before.capacity != after.capacity:
        amounts: dict[str, JSON] = {name: str(amount) for name, amount in after.capacity or ()}
        yield (
            _add(f"{path}/capacity", {"requests": amounts})
            if amounts
            else {
                "op": "remove",
                "path": f"{path}/capacity",
            }
        )


def _of_selectors(path: str, before: Sequence[str], after: Sequence[str]) -> Iterator[JSON]:
    """A selector that is dropped becomes ``true``, so that the others keep their numbers."""
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            yield {"op": "replace", "path": f"{path}/selectors/{number}/cel/expression", "value": new}


def _of_classes(before: Snapshot, after: Snapshot) -> Iterator[ObjectPatch]:
    if before.classes is after.classes:
        return
    for name, old in before.classes.items():
        new = after.classes.get(name, old)
        if new is not old and new.selectors != old.selectors:
            operations = [*_of_selectors("/spec", old.selectors, new.selectors)]
            yield _patch(_API, "DeviceClass", "", name, operations, is_mutable=True)


def _of_pod(pod: Pod, after: Snapshot) -> Iterator[ObjectPatch]:
    """Fewer of an extended resource. The containers are named: a strategic merge patch finds them by name."""
    now = after.pods.get(pod.key, pod)
    changed = [new for old, new in zip(pod.containers, now.containers, strict=True) if old != new]
    if changed:
        lists: dict[str, list[JSON]] = {}
        for each in changed:
            lists.setdefault("initContainers" if each.is_init else "containers", []).append(_resources(each))
        spec: dict[str, JSON] = {**lists}
        command = (
            "" if pod.controller is not None else _command("pod", pod.namespace, pod.name, "strategic", {"spec": spec})
        )
        yield ObjectPatch(
            "v1", "Pod", "pod", pod.namespace, pod.name, is_json=False, body={"spec": spec}, command=command
        )


def _resources(container: RequestingContainer) -> JSON:
    amounts: dict[str, JSON] = {each.resource: str(each.amount) for each in container.requests}
    return {"name": container.name, "resources": {"limits": amounts, "requests": amounts}}


def _patch(api: str, kind: str, namespace: str, name: str, operations: list[JSON], *, is_mutable: bool) -> ObjectPatch:
    group, _, version = api.partition("/")
    resource = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}.{version}.{group}"
    command = _command(resource, namespace, name, "json", operations, is_mutable=is_mutable)
    return ObjectPatch(api, kind, resource, namespace, name, is_json=True, body=operations, command=command)


def _command(resource: str, namespace: str, name: str, form: str, body: JSON, *, is_mutable: bool = False) -> str:
    where = f" -n {namespace}" if namespace else ""
    text = shlex.quote(orjson.dumps(body).decode())
    patch = f"kubectl patch {resource} {shlex.quote(name)}{where} --type={form} -p {text}"
    return patch if is_mutable else f"{patch} --dry-run=client -o json | kubectl replace --force -f -"


def _add(path: str, value: JSON) -> dict[str, JSON]:
    """Set a field, whether it is there or not."""
    return {"op": "add", "path": path, "value": value}
