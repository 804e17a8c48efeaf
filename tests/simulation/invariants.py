"""What holds at each moment of a history, and at its end. A judge reads the objects of the API server alone."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from allocator import parse_slice
from allocator.audit import device_findings
from extender.cluster.objects.claims import ALLOCATION_MODE, parse_claim_object
from extender.kube.api import Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, SLICES, Resource
from extender.lab.api import MemoryApi

_FINISHED: Final = {"Succeeded", "Failed"}
_GROUP: Final = "dra-extender.dev/group"
_GROUP_SIZE: Final = "dra-extender.dev/group-size"


class ViolationError(AssertionError):
    """Something does not hold.

    Attributes:
        law: its name, equal for all histories that break it.
    """

    def __init__(self, law: str, message: str) -> None:
        self.law = law
        super().__init__(f"{law}: {message}")


@dataclass
class Judge:
    """Looks at each change of an API server.

    Attributes:
        api: the API server.
        bound: how many pods were bound.
        violation: the first one.
        counted: how often each law was checked.
    """

    api: MemoryApi
    bound: int = 0
    violation: ViolationError | None = None
    counted: Counter[str] = field(default_factory=Counter)
    _pods: dict[ObjectKey, RawObject] = field(default_factory=dict)
    _claims: dict[ObjectKey, RawObject] = field(default_factory=dict)
    _quotas: dict[ObjectKey, RawObject] = field(default_factory=dict)
    _slices: dict[ObjectKey, Any] = field(default_factory=dict)
    _bound: dict[ObjectKey, list[ObjectKey]] = field(default_factory=dict)
    """By key: the claims of each pod that was bound and has not ended."""

    _given: set[str] = field(default_factory=set)
    """The uids of claims that came with devices."""

    def __post_init__(self) -> None:
        self._kinds: dict[str, dict[ObjectKey, Any]] = {
            PODS.kind: self._pods,
            CLAIMS.kind: self._claims,
            DEVICE_QUOTAS.kind: self._quotas,
            SLICES.kind: self._slices,
        }
        self.api.follow(self)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there is at first."""
        del at
        objects = list(objects)
        if (kept := self._kinds.get(resource.kind)) is not None:
            kept.update((key_of(each), each) for each in objects)
        if resource == PODS:
            running = [each for each in objects if each.get("status", {}).get("phase") == "Running"]
            self._bound.update((key_of(each), list(claims_of(each))) for each in running)
        if resource == CLAIMS:
            self._given.update(each["metadata"]["uid"] for each in objects if "allocation" in each.get("status", {}))
        return True

    def apply(self, event: Event) -> None:
        """An object has changed."""
        kept, key = self._kinds.get(event.resource.kind), key_of(event.object)
        if kept is None:
            return
        before = kept.get(key)
        if event.type is EventType.DELETED:
            kept.pop(key, None)
        else:
            kept[key] = event.object
        try:
            self._check(event, key, before)
        except ViolationError as violation:
            self.violation = self.violation or violation

    def _check(self, event: Event, key: ObjectKey, before: RawObject | None) -> None:
        if event.resource == PODS:
            pod = self._pods.get(key)
            if pod is None or pod.get("status", {}).get("phase") in _FINISHED:
                self._bound.pop(key, None)
            elif pod["spec"].get("nodeName") and before and not before["spec"].get("nodeName"):
                self._was_bound(key, pod)
        if event.resource == CLAIMS:
            for pod_key, claims in self._bound.items():
                if key in claims:
                    self._has_devices(pod_key)

    def _was_bound(self, key: ObjectKey, pod: RawObject) -> None:
        self.bound += 1
        self._bound[key] = list(claims_of(pod))
        self._has_devices(key)
        self._are_apart(key)
        self._is_within_quota(key)

    def _has_devices(self, key: ObjectKey) -> None:
        """Each claim of a bound pod is allocated and reserved for it."""
        self.counted["a bound pod has its devices"] += 1
        pod = self._pods[key]
        uid = pod["metadata"]["uid"]
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        for claim_key in self._bound[key]:
            claim = self._claims.get(claim_key)
            status = (claim or {}).get("status") or {}
            reserved = users(claim or {})
            is_reserved = any(each["uid"] == uid or (group and each["name"] == group) for each in reserved)
            if claim is None or "allocation" not in status or not is_reserved:
                what = (
                    "is gone" if claim is None else "is not allocated" if "allocation" not in status else "is not its"
                )
                raise ViolationError(
                    "a bound pod has its devices", f"pod {key} on {pod['spec']['nodeName']}: {claim_key} {what}"
                )

    def _are_apart(self, key: ObjectKey) -> None:
        """No device is held twice by claims of bound pods, and no counter or capacity is overdrawn."""
        self.counted["no device twice"] += 1
        running = {each["metadata"]["uid"] for each in self._pods.values() if _holds(each)}
        held = [each for each in self._claims.values() if running & {user["uid"] for user in users(each)}]
        claims = [parse_claim_object(each).claim for each in held]
        for finding in device_findings(claims, [parse_slice(each) for each in self._slices.values()]):
            raise ViolationError("no device twice", f"after the bind of pod {key}: {finding}")

    def _is_within_quota(self, key: ObjectKey) -> None:
        """A bind brings no more devices of a class than the DeviceQuotas of its namespace allow."""
        own = self._devices(self._bound[key])
        for quota_key, quota in self._quotas.items():
            if quota_key.namespace != key.namespace or quota["spec"].get("cohort"):
                continue
            for limit in quota["spec"].get("limits") or ():
                name, most = limit.get("deviceClassName"), limit.get("devices")
                if name is None or most is None or not own[name]:
                    continue
                self.counted["no DeviceQuota is exceeded"] += 1
                all_claims = {
                    each for pod, claims in self._bound.items() if pod.namespace == key.namespace for each in claims
                }
                used = self._devices(sorted(all_claims))[name]
                if used > most:
                    message = f"after the bind of pod {key}: {used} devices of class {name}, {quota_key} allows {most}"
                    raise ViolationError("no DeviceQuota is exceeded", message)

    def _devices(self, claims: list[ObjectKey]) -> Counter[str]:
        """How many devices claims hold, by class; without those of admin access."""
        found: Counter[str] = Counter()
        for claim in (self._claims[each] for each in claims if each in self._claims):
            classes = dict(_classes(claim))
            results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
            found.update(classes.get(each["request"], "") for each in results if not each.get("adminAccess"))
        return found

    def evicts(self, key: ObjectKey) -> None:
        """The service deletes a pod: one of higher priority waits, and may evict."""
        self.counted["a victim is less important"] += 1
        victim = self._pods.get(key)
        if victim is None:
            return
        waiting = [each for each in self._pods.values() if _may_evict(each)]
        priority = victim["spec"].get("priority", 0)
        if not any(each["spec"].get("priority", 0) > priority for each in waiting):
            message = f"pod {key} of priority {priority} is evicted, and no pod of higher priority waits"
            self.violation = self.violation or ViolationError("a victim is less important", message)

    def check_gangs(self) -> None:
        """When all is quiet, and nobody has changed devices, nodes or quotas: raises ViolationError."""
        gangs: dict[tuple[str, str], list[RawObject]] = {}
        for (namespace, _), pod in self._pods.items():
            if name := (pod["metadata"].get("annotations") or {}).get(_GROUP):
                gangs.setdefault((namespace, name), []).append(pod)
        for gang, members in gangs.items():
            self.counted["no gang is bound in part"] += 1
            size = int(members[0]["metadata"]["annotations"].get(_GROUP_SIZE, 0))
            bound = sum(map(_holds, members))
            if len(members) == size and 0 < bound < size:
                raise ViolationError("no gang is bound in part", f"gang {'/'.join(gang)}: {bound} of {size} pods")

    def idle_claims(self) -> list[ObjectKey]:
        """The claims that were given devices for nobody."""
        found = []
        for key, claim in self._claims.items():
            status, is_given = claim.get("status") or {}, claim["metadata"]["uid"] in self._given
            if "allocation" in status and not status.get("reservedFor") and _is_waiting(claim) and not is_given:
                found.append(key)
        return found

    def check_end(self) -> None:
        """When all is quiet: raises ViolationError."""
        self.counted["no claim is held by nobody"] += 1
        for key in self.idle_claims():
            raise ViolationError("no claim is held by nobody", f"claim {key} has devices, and nobody uses it")


def _holds(pod: RawObject) -> bool:
    """Whether a pod has a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in _FINISHED


def _may_evict(pod: RawObject) -> bool:
    """Whether a pod waits for which others may be evicted."""
    return not pod["spec"].get("nodeName") and pod["spec"].get("preemptionPolicy") != "Never"


def users(claim: RawObject) -> list[RawObject]:
    """For whom a claim is reserved."""
    return (claim.get("status") or {}).get("reservedFor") or []


def _is_waiting(claim: RawObject) -> bool:
    """Whether a claim gets devices only for a pod, and from a scheduler."""
    return ALLOCATION_MODE not in (claim["metadata"].get("annotations") or {})


def claims_of(pod: RawObject) -> Iterator[ObjectKey]:
    """The claims of a pod, as its spec and status name them."""
    namespace, status = pod["metadata"]["namespace"], pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name:
            yield ObjectKey(namespace, name)
    if special := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield ObjectKey(namespace, special)


def _classes(claim: RawObject) -> Iterator[tuple[str, str]]:
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        if "exactly" in request:
            yield request["name"], request["exactly"].get("deviceClassName", "")
        for option in request.get("firstAvailable") or ():
            yield f"{request['name']}/{option['name']}", option.get("deviceClassName", "")
