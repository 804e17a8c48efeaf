"""What is kept for pods that wait, beside what pods have, in a moment of a history."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.cluster.objects.pods import Keeping, PodCondition
from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS


@dataclass(frozen=True)
class Moment:
    """The objects of an API server at some time.

    Attributes:
        at: the virtual time.
        objects: by kind and key.
    """

    at: float
    objects: Mapping[str, Mapping[ObjectKey, RawObject]]

    def pod(self, uid: str) -> RawObject | None:
        """The pod with this uid."""
        return next((each for each in self.objects[PODS.kind].values() if each["metadata"]["uid"] == uid), None)


def keeping_of(pod: RawObject) -> Keeping:
    """What the conditions of a pod say is kept for it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return Keeping.of(PodCondition(each["type"], each["status"], each.get("message", "")) for each in conditions)


def woken(moment: Moment) -> list[RawObject]:
    """The pods without a node that were told that there may be devices for them."""
    return [each for each in moment.objects[PODS.kind].values() if not each["spec"].get("nodeName") and _is_woken(each)]


def _is_woken(pod: RawObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == DEVICES_CHANGED and each["status"] == "True" for each in conditions)


def given_to_others(pod: RawObject, claims: Sequence[RawObject], moments: Sequence[Moment]) -> str:
    """The name of a pod, no less important, for which devices of a bound pod were kept in all moments; else empty.

    Claims that had their devices before do not count, and claims that the other pod uses, too.
    """
    uid, priority = pod["metadata"]["uid"], pod["spec"].get("priority", 0)
    had = moments[0].objects[CLAIMS.kind]
    new = [each for each in claims if "allocation" not in (had.get(key_of(each), {}).get("status") or {})]
    devices = {device for each in new for device in _own_devices(each)}
    for key, other in moments[0].objects[PODS.kind].items():
        if other["metadata"]["uid"] == uid or other["spec"].get("nodeName") or not keeping_of(other).node:
            continue
        kept = set(map(str, keeping_of(other).devices))
        same = [each.pod(other["metadata"]["uid"]) for each in moments]
        lasts = all(each and not each["spec"].get("nodeName") and kept & _kept_names(each) for each in same)
        is_less = other["spec"].get("priority", 0) < priority
        if not {*map(key_of, new)}.isdisjoint(claims_of(other)):
            continue  # both use the claim
        if lasts and kept & devices and not is_less and not kept & _kept_names(pod):
            return str(key)
    return ""


def overdrawn(quota: RawObject, key: ObjectKey, moment: Moment) -> str:
    """By how much the pods of a namespace have more than a quota allows, with what is kept for others; else empty.

    Only the numbers of devices of a class are looked at, and only of quotas without a cohort.
    """
    for name, most in _limits(quota):
        has, kept = _counts(key.namespace, name, moment)
        if kept and has + kept > most:
            return f"pods have {has} devices of class {name}, {kept} are kept for others, and {most} are allowed"
    return ""


def wasted(pod: RawObject, moment: Moment) -> bool:
    """Whether a quota keeps a pod from running even if all pods that are evicted for it have gone."""
    namespace, victims = pod["metadata"]["namespace"], keeping_of(pod).victims
    for key, quota in moment.objects[DEVICE_QUOTAS.kind].items():
        for name, most in _limits(quota) if key.namespace == namespace else ():
            has, _ = _counts(namespace, name, moment, without=victims)
            if (wanted := _wanted(pod, name, moment)) and has + wanted > most:
                return True
    return False


def _counts(namespace: str, name: str, moment: Moment, without: Sequence[str] = ()) -> tuple[int, int]:
    """How many devices of a class the bound pods of a namespace have, and how many are kept for pods that wait."""
    held: set[ObjectKey] = set()
    kept = 0
    for key, pod in moment.objects[PODS.kind].items():
        if key.namespace != namespace or pod["metadata"]["uid"] in without:
            continue
        if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        if pod["spec"].get("nodeName"):
            held.update(claims_of(pod))
        elif keeping_of(pod).node:
            kept += _wanted(pod, name, moment)
    claims = moment.objects[CLAIMS.kind]
    return sum(_of_class(claims[each], name) for each in held if each in claims), kept


def _wanted(pod: RawObject, name: str, moment: Moment) -> int:
    """How many devices of a class a pod asks for by claims without alternatives that have none."""
    number = 0
    for key in claims_of(pod):
        claim = moment.objects[CLAIMS.kind].get(key)
        if claim is None or "allocation" in (claim.get("status") or {}):
            continue
        if claim["metadata"].get("annotations"):
            return 0  # some of its requests are optional, or a controller allocates it
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            exactly = request.get("exactly") or {}
            if exactly.get("deviceClassName") == name and not exactly.get("adminAccess"):
                number += exactly.get("count", 1) if exactly.get("allocationMode", "ExactCount") == "ExactCount" else 0
    return number


def _of_class(claim: RawObject, name: str) -> int:
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    classes = dict(classes_of(claim))
    return Counter(classes.get(each["request"], "") for each in results if not each.get("adminAccess"))[name]


def _limits(quota: RawObject) -> Iterator[tuple[str, int]]:
    """The classes that a quota without a cohort limits, with the most devices of each."""
    for limit in () if quota["spec"].get("cohort") else quota["spec"].get("limits") or ():
        if limit.get("deviceClassName") and limit.get("devices") is not None:
            yield limit["deviceClassName"], limit["devices"]


def _own_devices(claim: RawObject) -> set[str]:
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    return {
        f"{each['driver']}/{each['pool']}/{each['device']}"
        for each in results
        if not (each.get("adminAccess") or each.get("shareID"))
    }


def _kept_names(pod: RawObject) -> set[str]:
    return set(map(str, keeping_of(pod).devices))


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


def classes_of(claim: RawObject) -> Iterator[tuple[str, str]]:
    """The device class of each request of a claim, by the name that results have."""
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        if "exactly" in request:
            yield request["name"], request["exactly"].get("deviceClassName", "")
        for option in request.get("firstAvailable") or ():
            yield f"{request['name']}/{option['name']}", option.get("deviceClassName", "")
