"""What holds at each moment of a history, and at its end. A judge reads the objects of the API server alone."""

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from allocator import parse_slice
from allocator.audit import device_findings
from extender.cluster.objects.claims import ALLOCATION_MODE, parse_claim_object
from extender.kube.api import Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, RESOURCES, SLICES, Resource
from extender.lab.api import MemoryApi
from tests.simulation.kept import Moment, claims_of, classes_of, given_to_others, keeping_of, overdrawn, wasted

_T = TypeVar("_T")

_FINISHED: Final = {"Succeeded", "Failed"}
_MINUTE: Final = 60.0
_REMEMBERED: Final = 9
"""Moments that are remembered, a quarter of a second apart."""

_CALM_SECONDS: Final = 45.0
"""After a fault, the service may not know for this time what has happened: a dead watch is found by its silence."""

_OVERDRAWN_SECONDS: Final = 10.0
"""Two replicas keep devices at once, and each sees what the other has kept; then one of them gives back."""

_KEPT_SECONDS: Final = 150.0
"""Devices are kept for 60 s after the victims have gone, which may take as long, and a while until that is seen."""
_GROUP: Final = "dra-extender.dev/group"
_GROUP_SIZE: Final = "dra-extender.dev/group-size"


class ViolationError(AssertionError):
    """Something does not hold.

    Attributes:
        law: its name, equal for all histories that break it.
    """

    def __init__(self, law: str, message: str) -> None:
        self.law = law
        super().__init__(law, message)

    def __str__(self) -> str:
        return ": ".join(self.args)


@dataclass
class Judge:
    """Looks at each change of an API server.

    Attributes:
        api: the API server.
        now: the virtual time.
        caps: the most victims for one pod, and of one namespace within a minute.
        fits: whether a pod would fit without evictions, in a moment.
        is_sole: one process alone writes allocations, from the start to the end.
        calm_since: since when no fault lasts; None while one does.
        bound: how many pods were bound.
        changed_at: when something has changed last.
        violation: the first one.
        counted: how often each law was checked.
    """

    api: MemoryApi
    now: Callable[[], float] = lambda: 0.0
    caps: tuple[float, float] = (math.inf, math.inf)
    fits: Callable[[Moment, RawObject], bool] = lambda _moment, _pod: False
    is_sole: bool = False
    calm_since: float | None = 0.0
    bound: int = 0
    changed_at: float = 0.0
    violation: ViolationError | None = None
    counted: Counter[str] = field(default_factory=Counter)
    _objects: dict[str, dict[ObjectKey, RawObject]] = field(default_factory=lambda: {each: {} for each in RESOURCES})
    """By kind and key."""

    _bound: dict[ObjectKey, list[ObjectKey]] = field(default_factory=dict)
    """By key: the claims of each pod that was bound and has not ended."""

    _given: set[str] = field(default_factory=set)
    """The uids of claims that came with devices."""

    _past: deque[Moment] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """The latest moments, the oldest first."""

    _served: set[str] = field(default_factory=set)
    """The uids of pods that had a node, or devices kept for them, at any time."""

    _complete: set[str] = field(default_factory=set)
    """The uids of the pods of gangs that were served with as many others as have to run together, at one time."""

    _kept_since: dict[ObjectKey, float] = field(default_factory=dict)
    """Since when something is kept for each pod that waits."""

    _there: Mapping[str, Mapping[ObjectKey, RawObject]] | None = None
    """What there is, by kind and key; None: something has changed since."""

    _victims_for: Counter[str] = field(default_factory=Counter)
    _victims_of: dict[str, list[float]] = field(default_factory=dict)
    _overdrawn: dict[ObjectKey, float] = field(default_factory=dict)
    """Since when a quota is exceeded with what is kept; infinite: not by the service."""

    def __post_init__(self) -> None:
        self._pods, self._claims = self._objects[PODS.kind], self._objects[CLAIMS.kind]
        self._quotas, self._slices = self._objects[DEVICE_QUOTAS.kind], self._objects[SLICES.kind]
        self._read_claim = _Read(lambda each: parse_claim_object(each).claim)
        self._read_slice = _Read(parse_slice)
        self.api.follow(self)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there is at first."""
        del at
        self._there = None
        objects = list(objects)
        if (kept := self._objects.get(resource.kind)) is not None:
            kept.update((key_of(each), each) for each in objects)
        if resource == PODS:
            running = [each for each in objects if each.get("status", {}).get("phase") == "Running"]
            self._bound.update((key_of(each), list(claims_of(each))) for each in running)
        if resource == CLAIMS:
            self._given.update(each["metadata"]["uid"] for each in objects if "allocation" in each.get("status", {}))
        return True

    def apply(self, event: Event) -> None:
        """An object has changed."""
        kept, key = self._objects.get(event.resource.kind), key_of(event.object)
        if kept is None:
            return
        self._there, self.changed_at = None, self.now()
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
            if pod is not None and (pod["spec"].get("nodeName") or keeping_of(pod).node):
                self._note_served(pod)
            if pod is None or pod["spec"].get("nodeName") or not keeping_of(pod).node:
                self._kept_since.pop(key, None)
            else:
                self._kept_since.setdefault(key, self.now())
        if event.resource == DEVICE_QUOTAS and (before is None or before["spec"] != event.object["spec"]):
            self._overdrawn[key] = math.inf
        if event.resource == CLAIMS:
            if self.is_sole and _is_allocated(event.object) and not _is_allocated(before or {}):
                self._does_not_collide(key, event.object)
            for pod_key, claims in self._bound.items():
                if key in claims:
                    self._has_devices(pod_key)

    def _was_bound(self, key: ObjectKey, pod: RawObject) -> None:
        self.bound += 1
        self._bound[key] = list(claims_of(pod))
        self._has_devices(key)
        self._are_apart(key)
        self._is_within_quota(key)
        self._is_with_its_gang(key, pod)
        self._takes_nothing_kept(key, pod)

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
        held = [each for each in self._claims.items() if running & {user["uid"] for user in users(each[1])}]
        claims, slices = itertools.starmap(self._read_claim, held), self._slices.items()
        for finding in device_findings([*claims], [*itertools.starmap(self._read_slice, slices)]):
            raise ViolationError("no device twice", f"after the bind of pod {key}: {finding}")

    def _does_not_collide(self, key: ObjectKey, claim: RawObject) -> None:
        """One process alone knows what it has written: it allocates nothing twice, whatever is still on its way."""
        self.counted["one process never collides with itself"] += 1
        others = [each for other, each in self._claims.items() if other != key and _is_allocated(each)]
        for held in others:
            if _devices_of(held) & _devices_of(claim):
                message = f"{key} and {key_of(held)} are allocated one device"
                raise ViolationError("one process never collides with itself", message)

    def _is_with_its_gang(self, key: ObjectKey, pod: RawObject) -> None:
        """As many pods of its gang as have to run together had a node, or devices kept for them, at one time."""
        if (size := _gang_size(pod)) is None:
            return
        self.counted["no pod of a gang is bound before there are devices for all"] += 1
        own = self._gang_of(pod)
        sizes = {_gang_size(each) for each in own}
        served = len(self._served & {pod["metadata"]["uid"], *(each["metadata"]["uid"] for each in own)})
        is_late = pod["metadata"]["uid"] in self._complete
        if len(sizes) == 1 and len(own) >= size > served and not is_late:
            message = f"pod {key}: {served} of {size} had devices"
            raise ViolationError("no pod of a gang is bound before there are devices for all", message)

    def _note_served(self, pod: RawObject) -> None:
        """A pod has a node, or devices are kept for it: perhaps its gang is complete with it."""
        self._served.add(pod["metadata"]["uid"])
        if (size := _gang_size(pod)) is not None:
            served = self._served & {each["metadata"]["uid"] for each in self._gang_of(pod)}
            self._complete |= served if len(served) >= size else set()

    def _gang_of(self, pod: RawObject) -> list[RawObject]:
        """The pods that name the gang of a pod."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["annotations"][_GROUP]
        there = [each for key, each in self._pods.items() if key.namespace == namespace]
        return [each for each in there if (each["metadata"].get("annotations") or {}).get(_GROUP) == name]

    def _takes_nothing_kept(self, key: ObjectKey, pod: RawObject) -> None:
        """What is kept for a pod, no other pod gets that is not more important."""
        if not self._is_calm or not self._past:
            return
        self.counted["what is kept is given to no other pod"] += 1
        claims = [self._claims[each] for each in self._bound[key] if each in self._claims]
        if other := given_to_others(pod, claims, [*self._past, self._moment()]):
            message = f"pod {key} gets devices that are kept for pod {other}"
            raise ViolationError("what is kept is given to no other pod", message)

    @property
    def _is_calm(self) -> bool:
        """Whether the service knows what has happened more than a moment ago."""
        return self.calm_since is not None and (not self.calm_since or self.now() - self.calm_since > _CALM_SECONDS)

    def _moment(self) -> Moment:
        if self._there is None:
            self._there = {kind: dict(each) for kind, each in self._objects.items()}
        return Moment(self.now(), self._there)

    def look(self) -> None:
        """What holds from one moment to the next."""
        self._past.append(self._moment())
        if not self._is_calm:
            self._overdrawn = dict.fromkeys(self._overdrawn, math.inf)
            return
        for key, quota in self._quotas.items():
            if not (found := overdrawn(quota, key, self._past[-1])):
                self._overdrawn.pop(key, None)
                continue
            self.counted["no DeviceQuota is exceeded by what is kept"] += 1
            if self.now() - self._overdrawn.setdefault(key, self.now()) > _OVERDRAWN_SECONDS:
                violation = ViolationError("no DeviceQuota is exceeded by what is kept", f"{key}: {found}")
                self.violation = self.violation or violation

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
            classes = dict(classes_of(claim))
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
        uid = victim["metadata"]["uid"]
        preemptors = [each for each in waiting if uid in keeping_of(each).victims]
        if preemptors and "deletionTimestamp" not in victim["metadata"]:
            try:
                self._evicts_for(preemptors[0], key)
            except ViolationError as violation:
                self.violation = self.violation or violation

    def _evicts_for(self, pod: RawObject, victim: ObjectKey) -> None:
        """A pod is evicted for another one: within the caps, and neither in vain nor without need."""
        uid, now = pod["metadata"]["uid"], self.now()
        priority, others = pod["spec"].get("priority", 0), self._pods[victim]["spec"].get("priority", 0)
        if others >= priority:
            message = f"pod {victim} of priority {others} is evicted for pod {key_of(pod)} of priority {priority}"
            raise ViolationError("a victim is less important", message)
        self.counted["no victim beyond the caps"] += 1
        self._victims_for[uid] += 1
        recent = [at for at in self._victims_of.get(victim.namespace, ()) if at > now - _MINUTE]
        self._victims_of[victim.namespace] = [*recent, now]
        if self._victims_for[uid] > self.caps[0] or len(recent) + 1 > self.caps[1]:
            message = f"pod {victim} is evicted for pod {key_of(pod)}: {self._victims_for[uid]} for it"
            raise ViolationError("no victim beyond the caps", f"{message}, {len(recent) + 1} of its namespace")
        if not self._is_calm or not self._past:
            return
        moments = [*self._past, self._moment()]
        self.counted["no victim in vain"] += 1
        if all(wasted(pod, each) for each in moments):
            message = f"pod {victim} is evicted for pod {key_of(pod)}, which its quota keeps from running"
            raise ViolationError("no victim in vain", message)
        self.counted["no victim without need"] += 1
        if all(self.fits(each, pod) for each in (moments[0], moments[len(moments) // 2], moments[-1])):
            message = f"pod {victim} is evicted for pod {key_of(pod)}, which fits without"
            raise ViolationError("no victim without need", message)

    def check_gangs(self) -> None:
        """When all is quiet, and nobody has changed devices, nodes or quotas: raises ViolationError."""
        gangs: dict[tuple[str, str], list[RawObject]] = {}
        for (namespace, _), pod in self._pods.items():
            if name := (pod["metadata"].get("annotations") or {}).get(_GROUP):
                gangs.setdefault((namespace, name), []).append(pod)
        for gang, members in gangs.items():
            self.counted["no gang is bound in part"] += 1
            size = int(members[0]["metadata"]["annotations"].get(_GROUP_SIZE, 0))
            bound = sum(bool(each["spec"].get("nodeName")) for each in members)
            schedulers = {each["spec"].get("schedulerName") for each in members}
            has_ended = any(each.get("status", {}).get("phase") in _FINISHED for each in members)
            if len(schedulers) > 1 or has_ended:  # one scheduler runs here; and who comes back has lost what it had
                continue
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

    def held_for_waiting(self) -> dict[str, str]:
        """Per claim that was given devices only for pods that wait: which devices for whom."""
        bound = {each["metadata"]["uid"] for each in self._pods.values() if each["spec"].get("nodeName")}
        found = {}
        for key, claim in self._claims.items():
            uids = {each["uid"] for each in users(claim)}
            is_ours = claim["metadata"]["uid"] not in self._given and _is_waiting(claim)
            if _is_allocated(claim) and is_ours and not uids & bound and not _is_attached_later(claim):
                found[str(key)] = f"{sorted(_devices_of(claim))} for {sorted(uids)}"
        return found

    def claims(self) -> Mapping[ObjectKey, str]:
        """The uid of each claim that there is."""
        return {key: each["metadata"]["uid"] for key, each in self._claims.items()}

    def check_end(self) -> None:
        """When all is quiet: raises ViolationError."""
        self.counted["nothing is kept longer than its bound"] += 1
        for key, since in self._kept_since.items():
            if self.now() - since > _KEPT_SECONDS:
                message = f"for pod {key} since {since:.0f} s"
                raise ViolationError("nothing is kept longer than its bound", message)
        self.counted["no claim is held by nobody"] += 1
        for key in self.idle_claims():
            raise ViolationError("no claim is held by nobody", f"claim {key} has devices, and nobody uses it")


class _Read(Generic[_T]):
    """Reads objects, each once: an object that changes is another one."""

    def __init__(self, read: Callable[[RawObject], _T]) -> None:
        self._read = read
        self._known: dict[ObjectKey, tuple[RawObject, _T]] = {}

    def __call__(self, key: ObjectKey, obj: RawObject) -> _T:
        known = self._known.get(key)
        if known is None or known[0] is not obj:
            known = self._known[key] = obj, self._read(obj)
        return known[1]


def _holds(pod: RawObject) -> bool:
    """Whether a pod has a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in _FINISHED


def _gang_size(pod: RawObject) -> int | None:
    """How many pods of a pod's gang have to run together; None: it is in no gang, or does not say so."""
    words = pod["metadata"].get("annotations") or {}
    size = str(words.get(_GROUP_SIZE, ""))
    return int(size) if words.get(_GROUP) is not None and size.isdigit() else None


def _may_evict(pod: RawObject) -> bool:
    """Whether a pod waits for which others may be evicted."""
    return not pod["spec"].get("nodeName") and pod["spec"].get("preemptionPolicy") != "Never"


def _is_allocated(claim: RawObject) -> bool:
    return "allocation" in (claim.get("status") or {})


def _results(claim: RawObject) -> list[RawObject]:
    return (claim["status"]["allocation"].get("devices") or {}).get("results") or []


def _devices_of(claim: RawObject) -> set[tuple[str, str, str]]:
    """The whole devices that a claim has for itself. Counters and capacity are looked at by the audit."""
    return {
        (each["driver"], each["pool"], each["device"])
        for each in _results(claim)
        if not (each.get("adminAccess") or each.get("shareID"))
    }


def _is_attached_later(claim: RawObject) -> bool:
    """Whether its pod waits until the devices are attached to the node, and their driver has said nothing yet."""
    return not claim["status"].get("devices") and any(each.get("bindingConditions") for each in _results(claim))


def users(claim: RawObject) -> list[RawObject]:
    """For whom a claim is reserved."""
    return (claim.get("status") or {}).get("reservedFor") or []


def _is_waiting(claim: RawObject) -> bool:
    """Whether a claim gets devices only for a pod, and from a scheduler."""
    return ALLOCATION_MODE not in (claim["metadata"].get("annotations") or {})
