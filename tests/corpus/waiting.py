"""Pods that wait for devices in different ways, and the objects that belong to them, drawn at random."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tests.corpus.chance import Draw
from tests.corpus.machines import EXTENDED, MEMORY, OWN, PLUGIN, ZONE, raw
from tests.kit.clusters import CREATED, DRIVER, Object, claim, claim_template, pod, request

_WORDS: Final = "dra-extender.dev"
_EXPRESSIONS: Final = (
    *[f'{OWN}.model == "a100"', f"{OWN}.healthy", f"{OWN}.index >= 0", f'{OWN}.model in ["a100", "h100"]'] * 4,
    f'{OWN}.model == "h100"',
    f'{OWN}.model in ["A100", "h200"]',
    f"{OWN}.index > 1",
    f"{OWN}.index == 7",
    f'{OWN}.colour == "red"',
    f'{OWN}.modle == "a100"',
    f'{OWN}.version.isGreaterThan(semver("1.2.0"))',
    f'{MEMORY}.compareTo(quantity("60Gi")) >= 0',
    f'{OWN}.model == "a100" && {MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f"{OWN}.model > 3",
)
_TOLERATIONS: Final = (
    {"operator": "Exists"},
    {"key": "sick", "operator": "Exists"},
    {"key": "sick", "operator": "Equal", "value": "fan", "effect": "NoSchedule"},
    {"key": "sik", "operator": "Exists"},
)
_TEAM: Final = {"key": "team", "operator": "Exists"}


# --- what a claim asks for -----------------------------------------------------------------------------------


def _devices(draw: Draw, has: frozenset[str]) -> Object:
    """The fields of a request."""
    wanted: Object = request(
        device_class=draw.of(["gpu"] * 15 + ["large"] * 3 + ["h100"] * 3 + ["none"]),
        count=draw.of([1] * 8 + [2, 2, 3]),
        selectors=draw.some(_EXPRESSIONS, 1, 1) if draw(0.35) else [],
    )["exactly"]
    if "all devices" in has and draw(0.3):
        wanted["allocationMode"] = "All"
        del wanted["count"]
    if "capacity" in has and draw(0.6):
        names = draw.of([["bandwidth"], ["memory"], ["bandwidth", "memory"]] * 4 + [["memroy"]])
        wanted["capacity"] = {"requests": {name: draw.of(["1", "1", "2G", "2G", "3G", "8G", "30Gi"]) for name in names}}
    if "taints" in has and draw(0.5):
        wanted["tolerations"] = [draw.of(_TOLERATIONS)]
    if "resource classes" in has and draw(0.4):
        wanted["deviceClassName"] = "gold"
    return wanted


def _request(draw: Draw, name: str, has: frozenset[str]) -> Object:
    if "alternatives" in has and draw(0.6):
        options = [{"name": sub, **_devices(draw, has)} for sub in draw.some(["best", "good", "poor"], 2)]
        return {"name": name, "firstAvailable": options}
    wanted = _devices(draw, has)
    if "admin" in has and draw(0.4):
        wanted["adminAccess"] = True
    return {"name": name, "exactly": wanted}


def _asked(draw: Draw, name: str, has: frozenset[str], *more: Object, simple: bool = False) -> Object:
    """A claim."""
    number = 1 if simple else draw.of([1, 1, 2])
    requests = [request()] if simple else [_request(draw, f"r{index}", has) for index in range(number)]
    made = claim(name, *requests, *more)
    devices = made["spec"]["devices"]
    if not simple and draw(0.25):
        kind = draw.of(["matchAttribute", "matchAttribute", "distinctAttribute"])
        devices["constraints"] = [{kind: f"{DRIVER}/{draw.of(['root', 'model'] * 5 + ['rooot'])}"}]
    if draw(0.15):
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"mode": draw.of(["slow", "fast"])}}}]
    if "optional" in has and draw(0.6):
        names = draw.of(["r0", "r1", "r0,r1"] * 4 + ["nothing"])
        made["metadata"]["annotations"] = {f"{_WORDS}/optional-requests": names}
    return made


# --- ways to wait --------------------------------------------------------------------------------------------


def _by_name(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    names = [f"{name}-c", f"{name}-d"][: draw.of([1, 1, 1, 2])]
    return [_pod(draw, name, *names), *(_asked(draw, each, has, simple=draw(0.5)) for each in names)]


def _by_template(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    template = claim_template(draw.of([f"{name}-t", f"{name}-t", "shared-t"]))
    template["spec"]["spec"] = _asked(draw, "t", has, simple=draw(0.5))["spec"]
    made = _pod(draw, name)
    made["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"] if draw(0.97) else "absent"}
    ]
    return [template, made]


def _sharing(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    users = [_pod(draw, f"{name}{number}", f"{name}-c") for number in range(draw.number(2, 3))]
    return [*users, _asked(draw, f"{name}-c", has, simple=draw(0.6))]


def _extended(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    wanted = {EXTENDED: draw.of(["1", "1", "2"])}
    if draw(0.3):
        wanted[PLUGIN] = "1"
    if draw(0.04):
        wanted["example.com/gpus"] = "1"
    if "resource classes" in has and draw(0.6):
        wanted = {f"{_WORDS}/{draw.of(['gold', 'pair'])}": "1"}
    own = [f"{name}-c"] if draw(0.3) else []
    made = _pod(draw, name, *own, resources=wanted)
    return [made, *(_asked(draw, each, has, simple=True) for each in own)]


def _gang(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    size, priority = draw.number(2, 3), draw.of([0, 10, 50])
    found: list[Object] = []
    topology = draw.of(["", "", "", ZONE, f"{DRIVER}/root", "absent"])
    is_group = "pod groups" in has and draw(0.6)
    if is_group:
        found.append(_pod_group(draw, name, size, topology))
    for number in range(size - draw(0.08)):
        made = _pod(draw, f"{name}{number}", f"{name}{number}-c", priority=priority)
        if is_group:
            made["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            keys = {"group": name, "group-size": str(size), "group-topology": topology}
            annotations = {f"{_WORDS}/{key}": value for key, value in keys.items() if value}
            made["metadata"].setdefault("annotations", {}).update(annotations)
        found += [made, _asked(draw, f"{name}{number}-c", has, simple=draw(0.3 if "optional" in has else 0.8))]
    if "group claims" in has and is_group:
        _share_claim(found, name)
    return found


def _pod_group(draw: Draw, name: str, size: int, topology: str) -> Object:
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": size}} if draw(0.85) else {"basic": {}}}
    if topology and "/" not in topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return raw("PodGroup", name, namespace="ns", spec=spec)


def _share_claim(found: list[Object], name: str) -> None:
    """The group has a claim of its own, from a template, which its pods share."""
    entry = {"name": "shared", "resourceClaimTemplateName": f"{name}-shared"}
    for each in found:
        if each["kind"] == "PodGroup":
            each["spec"]["resourceClaims"] = [entry]
        if each["kind"] == "Pod":
            each["spec"]["resourceClaims"].append(entry)
    found.append(claim_template(f"{name}-shared"))


def _negotiated(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    kinds = [each for each in ("license", "composed") if {"license": "negotiated", "composed": "contexts"}[each] in has]
    asked = request("license", device_class=draw.of(kinds))
    made = _asked(draw, f"{name}-c", has, asked, simple=True)
    if draw(0.5):
        made["spec"]["devices"]["requests"] = [asked]
    if draw(0.2):
        reference = {"apiGroup": "licenses.example.com", "kind": "Edition", "name": draw.of(["pro", "pro", "absent"])}
        made["metadata"]["annotations"] = {f"{_WORDS}/parameters-ref": json.dumps(reference)}
    found = [_pod(draw, name, f"{name}-c"), made]
    if draw(0.2):
        made["metadata"].setdefault("annotations", {})[f"{_WORDS}/allocation-mode"] = "Immediate"
    return found


def _immediate(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    made = _asked(draw, f"{name}-c", has, simple=draw(0.5))
    mode = draw.of(["Immediate"] * 12 + ["immediate"])
    made["metadata"].setdefault("annotations", {}).update(
        {
            f"{_WORDS}/allocation-mode": mode,
            f"{_WORDS}/priority": draw.of(["0", "5"] * 6 + ["high"]),
        }
    )
    return [made, *([_pod(draw, name, f"{name}-c")] if draw(0.6) else [])]


def _pinned(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    made = _pod(draw, name, f"{name}-c")
    made["spec"]["nodeName"] = draw.of(["node-a", "node-a", "node-b", "absent"])
    return [made, _asked(draw, f"{name}-c", has, simple=draw(0.7))]


def _with_volume(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    made, *more = _by_name(draw, name, has)
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return [made, *more]


def _taking(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    made, *more = _by_name(draw, name, has)
    (container,) = made["spec"]["containers"]
    container["resources"]["claims"] = [{"name": each["name"]} for each in made["spec"]["resourceClaims"]]
    container["resources"]["requests"] = {"cpu": draw.of(["1", "3", "7"]), "memory": "2Gi"}
    return [made, *more]


def _elsewhere(draw: Draw, name: str, _: frozenset[str]) -> list[Object]:
    """A pod whose claim has devices already, somewhere."""
    own = claim(f"{name}-c", allocated=["node-a/gpu-0"], at=draw.of(["node-a", "gone"]))
    if draw(0.6):
        own["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    if draw(0.2):
        own["metadata"]["deletionTimestamp"] = CREATED
    return [_pod(draw, name, f"{name}-c"), own]


def _plain(draw: Draw, name: str, _: frozenset[str]) -> list[Object]:
    return [_pod(draw, name, resources={"cpu": draw.of(["1", "2"])})]


def _nominated(draw: Draw, name: str, has: frozenset[str]) -> list[Object]:
    made, *more = _by_name(draw, name, has)
    made["status"]["nominatedNodeName"] = draw.of(["node-a", "node-b", "absent"])
    return [made, *more]


_WAYS: Final[Mapping[str, Callable[[Draw, str, frozenset[str]], list[Object]]]] = {
    "extended resources": _extended,
    "gangs": _gang,
    "negotiated": _negotiated,
    "contexts": _negotiated,
    "immediate": _immediate,
    "pinned": _pinned,
    "volumes": _with_volume,
    "node resources": _taking,
    "nominated": _nominated,
    "allocated": _elsewhere,
    "shared": _sharing,
    "plain": _plain,
}
"""By feature of a world: a way to wait."""

Placed: TypeAlias = list[Object]


def party(draw: Draw, name: str, has: frozenset[str]) -> Placed:
    """Pods that come together, in a way that the world has, with all objects that belong to them."""
    ways = [
        _by_name,
        _by_template,
        _by_template,
        *(way for feature, way in _WAYS.items() if feature in has for _ in range(2)),
    ]
    found: Placed = draw.of(ways)(draw, name, has)
    return [_moved(each, "team") for each in found] if "namespaces" in has and draw(0.35) else found


def _moved(obj: Object, namespace: str) -> Object:
    """An object of another namespace."""
    metadata = {**obj["metadata"], "namespace": namespace}
    return {**obj, "metadata": {**metadata, "uid": f"{metadata['uid']}-{namespace}"}}


def _pod(draw: Draw, name: str, *claims: str, **more: Any) -> Object:
    """A pod with some conditions of its own."""
    priority = more.pop("priority", draw.of([0, 0, 10, 100, 1000]))
    created = f"2026-01-{draw.number(1, 28):02}T00:00:00Z"
    labels = {"app": draw.of(["web", "job"])}
    made = pod(name, *claims, priority=priority, created=created, labels=labels, **more)
    fields: Object = {
        "schedulerName": draw.of(["dra-scheduler"] * 12 + ["default-scheduler"]),
        "tolerations": [_TEAM] if draw(0.3) else None,
        "nodeSelector": {ZONE: draw.of("ab")} if draw(0.08) else None,
        "affinity": _in_zone(draw.of("abc")) if draw(0.06) else None,
        "schedulingGates": [{"name": "example.com/quota"}] if draw(0.03) else None,
        "preemptionPolicy": "Never" if draw(0.08) else None,
    }
    made["spec"] |= {key: value for key, value in fields.items() if value is not None}
    if draw(0.15):
        policy = draw.of(["best-fit", "first-fit", "spread", "pack", "reserve", "fragmentation"] * 2 + ["best"])
        made["metadata"]["annotations"] = {f"{_WORDS}/policy": policy}
    return made


def _in_zone(zone: str) -> Object:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
