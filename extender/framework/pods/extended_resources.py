"""Extended resources of a pod on a node: device plugins serve some, and a special claim serves the rest (KEP-5004).

The requests of the claim, their numbers of devices, and for each container the requests whose devices it gets, follow
from the device classes. A class with members (a group resource) has a request for each member. Bind creates the claim.
A claim of an earlier try is used again if it suits the node.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import orjson

from allocator import (
    MAX_RESULTS,
    AllocationResult,
    Claim,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    DeviceRequest,
    Features,
    GroupResource,
    Quantity,
    Reason,
    Request,
    allocation_reaches,
    allocation_reaches_all,
    missing_class,
)
from allocator.reason import Cause, request_noun
from extender.cluster.consumers import is_in_use
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.claims import SPECIAL, ClaimObject
from extender.cluster.objects.extended_resources import (
    IMPLICIT_PREFIX,
    ExtendedClaim,
    ExtendedRequest,
    RequestingContainer,
    RequestMapping,
)
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot

_ONE: Final = Quantity.from_int(1).nano

UNMADE: Final = "-extended-resources"
"""Suffix of a pod's name in the name of its special claim; of a pod's uid in place of the uid of a claim to create."""

_LONGEST_NAME: Final = 253

NO_GROUPS: Final[Mapping[str, GroupResource]] = {}

_REQUEST: Final = re.compile(
    r"\b(?:request )?(?P<name>container-\d+-request-\d+)(?:-\d+-(?P<member>[a-z0-9]([-a-z0-9]*[a-z0-9])?))?(?![-\w])"
)


_TOO_MANY: Final = Cause(
    "too-many-devices", f"extended resources need {{detail}} devices, a claim can hold {MAX_RESULTS}"
)
_NO_COUNT: Final = Cause("no-count", "{detail}")


class DemandError(ValueError):
    """No claim can serve the containers' requests, for a reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason.in_words())


@dataclass(frozen=True, slots=True)
class SpecialRequests:
    """The content of a special claim: a request per container and resource, and which container gets which request."""

    spec: ClaimSpec
    mappings: tuple[RequestMapping, ...]


@dataclass(frozen=True, slots=True)
class _Need:
    """Devices for one resource of one container; ``name`` is the name of a request for it."""

    container: RequestingContainer
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class _Own:
    """A request for devices that no other request provides."""

    name: str
    count: int


def demand(pod: Pod, classes: Mapping[str, str], groups: Mapping[str, GroupResource] = NO_GROUPS) -> SpecialRequests:
    """What a pod needs of device classes.

    Each container and sidecar has its own request per resource. An init container uses the devices of requests of
    containers that start after it; for the devices that it lacks then, there is one more request, as large as the
    largest lack of all init containers. Each group resource has requests and a constraint of its own.

    Args:
        pod: with its containers.
        classes: the resources to serve, with their device classes.
        groups: those device classes that stand for several others.

    Raises:
        DemandError: an amount is no whole number, or a claim cannot hold that many devices.
    """
    requests: list[Request] = []
    constraints: list[ConstraintSpec] = []
    mappings: list[RequestMapping] = []
    for resource, device_class in sorted(classes.items()):
        own, shares = _served(list(_needs(pod, resource)))
        names: dict[str, list[str]] = {}
        for each in own:
            made, rules = _requests(each, device_class, groups.get(device_class))
            requests += made
            constraints += rules
            names[each.name] = [one.name for one in made]
        mappings += [
            RequestMapping(need.container.name, resource, name) for need, share in shares for name in names[share]
        ]
    total = sum(alternative.count for each in requests for alternative in each.alternatives)
    if total > MAX_RESULTS:
        raise DemandError(Reason(_TOO_MANY, detail=str(total)))
    spec = ClaimSpec(tuple(sorted(requests, key=lambda each: each.name)), tuple(constraints))
    return SpecialRequests(spec, tuple(mappings))


def wanted(pod: Pod) -> tuple[str, ...]:
    """The extended resources that a pod's containers request, by name."""
    if not pod.containers:
        return ()
    asked = (each for container in pod.containers for each in container.requests)
    return tuple(sorted({each.resource for each in asked if each.amount.nano}))


def request_words(pod: Pod) -> Mapping[str, str]:
    """The words by which people know the requests of a special claim, by request name.

    Example: ``example.com/gpu of container main``.
    """
    return {
        request_name(container, each): f"{each.resource} of container {container.name}"
        for container in pod.containers
        for each in container.requests
    }


def request_nouns(pod: Pod) -> Callable[[str], str]:
    """What to call the requests of a pod, by label: those of its special claim by their resources and containers."""
    words = request_words(pod)
    return (lambda label: in_words(request_noun(label), words)) if words else request_noun


def in_words(text: str, words: Mapping[str, str]) -> str:
    """A text in which words replace the names of a special claim's requests."""
    return _REQUEST.sub(partial(_worded, words), text) if words else text


def _worded(words: Mapping[str, str], found: re.Match[str]) -> str:
    """``nic of example.com/pair of container main`` for the request of a member."""
    resource = words.get(found["name"])
    if resource is None:
        return found[0]
    return f"{found['member']} of {resource}" if found["member"] else resource


def request_name(container: RequestingContainer, request: ExtendedRequest) -> str:
    """The name of the request for one resource of a container, as Kubernetes has it."""
    return f"container-{container.index}-request-{request.index}"


def _needs(pod: Pod, resource: str) -> Iterator[_Need]:
    for container in pod.containers:
        for each in container.requests:
            count = _count(container, each) if each.resource == resource else 0
            if count:
                yield _Need(container, request_name(container, each), count)


def _count(container: RequestingContainer, request: ExtendedRequest) -> int:
    count, rest = divmod(request.amount.nano, _ONE)
    if rest or count < 0:
        wrong = "is negative" if count < 0 else "is not a whole number"
        text = f"container {container.name} asks for {request.amount} of {request.resource}, which {wrong}"
        raise DemandError(Reason(_NO_COUNT, detail=text))
    return count


def _served(needs: Sequence[_Need]) -> tuple[list[_Own], list[tuple[_Need, str]]]:
    """The requests for one resource, and for each need the names of the requests that serve it."""
    lasting = [need for need in needs if _lasts(need.container)]
    own = [_Own(need.name, need.count) for need in lasting]
    shares = [(need, need.name) for need in lasting]
    missing: list[tuple[_Need, int]] = []
    brief: list[tuple[_Need, str | None]] = []
    for need in needs:
        if _lasts(need.container):
            continue
        left = need.count
        for other in lasting:
            if left > 0 and other.container.index >= need.container.index:
                brief.append((need, other.name))
                left -= other.count
        if left > 0:
            brief.append((need, None))
            missing.append((need, left))
    if not missing:
        return own, [*shares, *((need, name) for need, name in brief if name is not None)]
    # The first of the largest.
    largest, count = max(missing, key=lambda pair: pair[1])
    return [*own, _Own(largest.name, count)], [*shares, *((need, name or largest.name) for need, name in brief)]


def _lasts(container: RequestingContainer) -> bool:
    return not container.is_init or container.restarts


def _requests(own: _Own, device_class: str, group: GroupResource | None) -> tuple[list[Request], list[ConstraintSpec]]:
    """The requests for some devices of a class, or for some group resources, with the constraints of these."""
    if group is None:
        return [Request(name=own.name, alternatives=(DeviceRequest(device_class=device_class, count=own.count),))], []
    total = own.count * sum(count for _, count in group.members)
    if total > MAX_RESULTS:
        raise DemandError(Reason(_TOO_MANY, detail=str(total)))
    found = [group_requests(group, f"{own.name}-{number}-") for number in range(own.count)]
    return [each for made, _ in found for each in made], [each for _, rules in found for each in rules]


# --- the special claim --------------------------------------------------------------------------------------


def special_claim(pod: Pod, spec: ClaimSpec) -> ClaimObject:
    """The special claim to create for a pod. Its name follows from the pod and the requests; its uid is provisional."""
    claim = Claim(
        namespace=pod.namespace,
        name=_name(pod, spec),
        uid=f"{pod.uid}{UNMADE}",
        spec=spec,
        owner_uid=pod.uid,
        annotations={SPECIAL: "true"},
        owner_name=pod.name,
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata = {
        "namespace": claim.namespace,
        "name": claim.name,
        "annotations": dict(claim.annotations),
        "ownerReferences": [owner],
    }
    raw = {"metadata": metadata, "spec": {"devices": devices_json(spec.requests, spec.constraints)}}
    return ClaimObject(claim, resource_version="", created="", raw=orjson.dumps(raw))


def is_ours(claim: ClaimObject, pod_name: str) -> bool:
    """Whether we have created a special claim: other schedulers let the API server generate the name."""
    pod = Pod(claim.claim.namespace, pod_name, claim.claim.owner_uid or "")
    return claim.claim.name == _name(pod, claim.claim.spec)


def _name(pod: Pod, spec: ClaimSpec) -> str:
    asked: list[tuple[object, ...]] = [
        (each.name, own.device_class, own.count) for each in spec.requests for own in each.alternatives
    ]
    asked += [(each.attribute, *each.requests) for each in spec.constraints]
    suffix = f"{UNMADE}-{hashlib.sha256(f'{pod.uid} {asked}'.encode()).hexdigest()[:10]}"
    return f"{pod.name[: _LONGEST_NAME - len(suffix)].rstrip('-.')}{suffix}"


_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 30
"""Characters of a class in the name of a request, which has 63."""


def group_requests(group: GroupResource, prefix: str = "") -> tuple[tuple[Request, ...], tuple[ConstraintSpec, ...]]:
    """The requests for one group resource, and the constraint over them if its devices have to match.

    Each request is named by its class: ``prefix`` and the name, with ``-`` for what no request name can have.
    """
    requests: list[Request] = []
    for number, (device_class, count) in enumerate(group.members):
        label = f"{prefix}{_NOT_IN_LABELS.sub('-', device_class)[:_LONGEST].strip('-')}"
        name = label if all(each.name != label for each in requests) else f"{label}-{number}"
        requests.append(Request(name, (DeviceRequest(device_class=device_class, count=count),)))
    if not group.match_attribute:
        return tuple(requests), ()
    names = tuple(each.name for each in requests)
    return tuple(requests), (ConstraintSpec(ConstraintKind.MATCH, group.match_attribute, names),)


def devices_json(requests: Iterable[Request], constraints: Iterable[ConstraintSpec]) -> dict[str, object]:
    """``spec.devices`` of a claim with these requests."""
    found: dict[str, object] = {
        "requests": [
            {"name": each.name, "exactly": {"deviceClassName": way.device_class, "count": way.count}}
            for each in requests
            for way in each.alternatives
        ]
    }
    rules = [{"requests": [*each.requests], "matchAttribute": each.attribute} for each in constraints]
    return {**found, "constraints": rules} if rules else found


_UNSERVED: Final = Cause("unserved", "neither a device plugin nor a device class offers extended resource {detail}")
_MEMBER: Final = Cause("member-class", "device class {detail}")


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a pod on one node.

    Attributes:
        pending: claims to allocate there, together; a special claim comes last.
        kept: an allocated special claim that suits the node.
        stale: other special claims: they are deleted first, so that their devices are free for the pod.
        status: the special claim for the pod's status; None if the pod needs none.
    """

    pending: tuple[ClaimObject, ...] = ()
    kept: ClaimObject | None = None
    stale: tuple[ClaimObject, ...] = ()
    status: ExtendedClaim | None = None

    def world(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the claims are allocated: without the stale ones."""
        for each in self.stale:
            snapshot = snapshot.without_claim(each.key)
        return snapshot


_Variant: TypeAlias = Needs | Reason


@dataclass(frozen=True, slots=True)
class Special:
    """A pod's extended resources and special claims.

    Attributes:
        wanted: the requested resources.
        classes: the resources that a device class serves, with the name of the class.
        groups: those of the classes that stand for several others.
        refusals: why the class of a resource cannot serve it.
        made: existing special claims of the pod whose allocation is not void.
        void: existing special claims whose allocation is void.
        assumed: the assumed allocation of a claim that is being created.
    """

    pod: Pod | None = None
    wanted: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, GroupResource] = field(default_factory=dict)
    refusals: Mapping[str, Reason] = field(default_factory=dict)
    made: tuple[ClaimObject, ...] = ()
    void: tuple[ClaimObject, ...] = ()
    assumed: AllocationResult | None = None
    _variants: dict[tuple[str, ...], _Variant] = field(default_factory=dict, compare=False, repr=False)
    """Needs with a new claim, by the resources that it serves; many nodes share an entry."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to decide or to clean up."""
        left = self.made or self.void or (self.pod is not None and self.pod.extended_claim)
        return bool(self.wanted or left)

    @property
    def asked(self) -> tuple[ClaimObject, ...]:
        """The claim that the pod needs on a node without device plugins."""
        needs = self._variant(tuple(self.wanted))
        return () if isinstance(needs, Reason) else needs.pending

    def on(self, node: NodeObject) -> Needs | Reason:
        """What the pod needs on a node; or why it cannot run there."""
        served = tuple([name for name in self.wanted if not _has_plugin(node, name)]) if self.wanted else ()
        needs = self._variant(served)
        if isinstance(needs, Reason) or not (self.made or self.void or self.assumed):
            return needs
        stale = (*self.made, *self.void)
        if not needs.pending:
            return Needs(stale=stale)
        (new,) = needs.pending
        chosen = self._chosen(new, node)
        left = tuple(each for each in stale if each is not chosen)
        status = None if needs.status is None else replace(needs.status, claim_name=chosen.claim.name)
        if chosen.claim.allocation is None:
            return Needs(pending=(chosen,), stale=left, status=status)
        return Needs(kept=chosen, stale=left, status=status)

    def _chosen(self, new: ClaimObject, node: NodeObject) -> ClaimObject:
        """An existing claim that suits the node, preferably an allocated one; else the new one."""
        same = [each for each in self.made if each.claim.spec == new.claim.spec and not each.claim.deleting]
        suiting = [each for each in same if reaches(each, node)]
        suiting.sort(key=lambda each: each.claim.allocation is None)
        return suiting[0] if suiting else self._new(new, node)

    def _variant(self, served: tuple[str, ...]) -> _Variant:
        if served not in self._variants:
            self._variants[served] = self._worked_out(served)
        return self._variants[served]

    def _worked_out(self, served: tuple[str, ...]) -> _Variant:
        for name in served:
            if name not in self.classes:
                return Reason(_UNSERVED, detail=name)
            if name in self.refusals:
                return self.refusals[name]
        if self.pod is None or not served:
            return Needs()
        try:
            asked = demand(self.pod, {name: self.classes[name] for name in served}, self.groups)
        except DemandError as error:
            return error.reason
        new = special_claim(self.pod, asked.spec)
        return Needs(pending=(new,), status=ExtendedClaim(new.claim.name, asked.mappings))

    def _new(self, new: ClaimObject, node: NodeObject) -> ClaimObject:
        """The new claim, with its assumed allocation if there is one."""
        if self.assumed is None:
            return new
        requests = {each.name for each in new.claim.spec.requests}
        found = replace(new, claim=replace(new.claim, allocation=self.assumed))
        is_same = {each.request for each in self.assumed.results} <= requests
        return found if is_same and reaches(found, node) else new


NO_SPECIAL: Final = Special()


def special_of(pod: Pod, snapshot: Snapshot) -> Special:
    """A pod's extended resources and special claims in a cluster."""
    names = wanted(pod)
    found = snapshot.special_claims(pod.uid)
    if not names and not found and pod.extended_claim is None:
        return NO_SPECIAL
    classes = {name: served for name in names if (served := class_serving(name, snapshot)) is not None}
    void = tuple(each for each in found if _is_void(each, snapshot))
    new = snapshot.assumed.get(f"{pod.uid}{UNMADE}")
    return Special(
        pod=pod,
        wanted=names,
        classes=classes,
        groups=groups_of(classes.values(), snapshot),
        refusals={name: why for name, served in classes.items() if (why := _refusal(served, snapshot))},
        made=tuple(_with_assumed(each, pod, snapshot) for each in found if each not in void),
        void=void,
        assumed=None if new is None else new.allocation,
    )


def class_serving(resource: str, snapshot: Snapshot) -> str | None:
    """The device class that serves an extended resource, by its own name or by the implicit one."""
    if resource.startswith(IMPLICIT_PREFIX):
        return resource.removeprefix(IMPLICIT_PREFIX)
    return snapshot.extended.get(resource)


def groups_of(classes: Iterable[str], snapshot: Snapshot) -> Mapping[str, GroupResource]:
    """The device classes among these that stand for several others."""
    found = {name: known.group for name in classes if (known := snapshot.classes.get(name)) is not None}
    return {name: group for name, group in found.items() if group is not None}


def _refusal(device_class: str, snapshot: Snapshot) -> Reason | None:
    """Why a device class can serve no extended resource; None if it can."""
    known = snapshot.classes.get(device_class)
    if known is None:
        return missing_class(device_class)
    for name, _ in known.group.members if known.group is not None else ():
        member = snapshot.classes.get(name)
        if member is None:
            return Reason(_MEMBER, detail=f"{device_class}: its member {name} does not exist")
        if member.group is not None or member.controller:
            what = "members, too" if member.group is not None else "a controller"
            return Reason(_MEMBER, detail=f"{device_class}: its member {name} has {what}")
    return None


def reaches(claim: ClaimObject, node: NodeObject) -> bool:
    """Whether pods that use a claim can run on a node; true while the claim is not allocated."""
    allocation = claim.claim.allocation
    return allocation is None or allocation_reaches(allocation, node.node)


def reaches_anywhere(claim: ClaimObject) -> bool:
    """Whether pods that use a claim can run on any node, as far as the claim goes."""
    allocation = claim.claim.allocation
    return allocation is None or allocation_reaches_all(allocation)


def _has_plugin(node: NodeObject, resource: str) -> bool:
    amount = node.allocatable.get(resource)
    return amount is not None and amount.nano > 0


def _is_void(claim: ClaimObject, snapshot: Snapshot) -> bool:
    return not is_in_use(claim.claim, snapshot) and bool(double_allocation(snapshot, claim.claim.uid))


def _with_assumed(claim: ClaimObject, pod: Pod, snapshot: Snapshot) -> ClaimObject:
    """The claim with its assumed allocation for this pod, if there is one."""
    assumed_allocation = snapshot.assumed.get(claim.claim.uid)
    if claim.claim.allocation is not None or assumed_allocation is None or assumed_allocation.pod_uid != pod.uid:
        return claim
    return replace(claim, claim=replace(claim.claim, allocation=assumed_allocation.allocation))


def without_devices(pod: Pod, snapshot: Snapshot, features: Features) -> str:
    """Why a pod that has a node starts without devices for its extended resources; empty if it gets them.

    kubelet waits for claims that the pod names. It does not wait for a special claim (Kubernetes 1.36): without
    ``status.extendedResourceClaimStatus`` it starts the pod at once, and ignores resources that the node does not have.
    """
    node = snapshot.nodes.get(pod.node_name)
    if node is None or not (pod.containers and features.extended_resource) or pod.extended_claim is not None:
        return ""
    needs = special_of(pod, snapshot).on(node)
    if isinstance(needs, Reason):
        return f"the pod has node {node.name}, and kubelet starts it without devices: {needs.in_words()}"
    resources = sorted({each.resource for each in needs.status.mappings}) if needs.status is not None else []
    if not resources:
        return ""
    return (
        f"the pod has node {node.name}, and kubelet starts it without {', '.join(resources)}: kubelet does not wait "
        "for devices of a device class; remove spec.nodeName, so that a scheduler allocates them"
    )
