"""Worlds: settings, what a cluster has at first, and what comes later; each from its number alone."""

from dataclasses import dataclass
from typing import Any, Final

from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from tests.corpus.chance import Draw
from tests.corpus.machines import CONTEXTS, CONTROLLER, classes, machine, network_pools, raw, rules, running
from tests.corpus.waiting import party
from tests.kit.clusters import DRIVER, Object, budget
from tests.kit.controllers import Fault, Licenses

FEATURES: Final = (
    "extended resources",
    "gangs",
    "pod groups",
    "group claims",
    "quota",
    "negotiated",
    "contexts",
    "nominated",
    "preemption",
    "immediate",
    "pinned",
    "volumes",
    "node resources",
    "resource classes",
    "partitions",
    "compatibility",
    "capacity",
    "alternatives",
    "taints",
    "binding conditions",
    "optional",
    "all devices",
    "admin",
    "lists",
    "shared",
    "allocated",
    "plain",
    "per-device places",
    "node operations",
    "network",
    "namespaces",
    "budgets",
    "resource quotas",
    "faults",
    "whole nodes",
    "cpu of all pods",
    "few steps",
    "slow",
    "others",
)
NEEDED: Final = {
    "pod groups": {"gangs"},
    "group claims": {"gangs", "pod groups"},
    "compatibility": {"partitions"},
    "budgets": {"preemption"},
    "quota": {"namespaces"},
}
"""What a feature makes no sense without."""

POLICIES: Final = ("fragmentation", "best-fit", "first-fit", "spread", "pack", "reserve")
PARAMETERS: Final = {"apiVersion": "licenses.example.com/v1", "kind": "Edition", "resource": "editions"}
"""The kind of objects that claims name for the controller of licenses."""

_SHARES: Final = {
    **dict.fromkeys(("few steps", "group claims", "cpu of all pods", "admin"), 0.04),
    **dict.fromkeys(("slow", "preemption", "nominated", "others"), 0.25),
    "faults": 0.2,
}
"""How many worlds have a feature beside others, where that is not as for most."""

_GATES: Final = {
    "node resources": "DRANodeAllocatableResources",
    "group claims": "DRAWorkloadResourceClaims",
    "compatibility": "DRADeviceCompatibilityGroups",
    "lists": "DRAListTypeAttributes",
    "node operations": "DRAOptionalNodeOperations",
}


@dataclass(frozen=True)
class World:
    """A cluster, and the service over it.

    Attributes:
        has: its features.
        settings: of the service.
        objects: what there is at first.
        comes: what comes later, in parties: objects that belong together.
        controllers: of negotiated claims, by name.
    """

    number: int
    has: frozenset[str]
    settings: dict[str, Any]
    objects: list[Object]
    comes: list[list[Object]]
    controllers: dict[str, Licenses]

    @property
    def name(self) -> str:
        """Its number, for files and messages."""
        return f"world-{self.number:03}"


def world(number: int, has: frozenset[str] | None = None) -> World:
    """The world of this number. Each feature is in the middle of some worlds, and on the edge of others.

    Args:
        has: its features; None: those of the number.
    """
    draw = Draw(f"world {number}")
    has = _features(draw, number) if has is None else has
    nodes = [f"node-{letter}" for letter in "abcdef"[: draw.of([1, 2, 2, 3, 3, 4, 6])]]
    machines = [each for name in nodes for each in machine(draw, name, has)]
    machines += _drivers(draw)
    published = [each for each in machines if each["kind"] == "ResourceSlice"]
    objects = [*classes(draw, has), *machines, *(network_pools(draw, has) if "network" in has else [])]
    objects += running(draw, published, has, 0.75 if "preemption" in has else draw.of([0.1, 0.3, 0.6]))
    if "taints" in has:
        objects += rules(draw, nodes)
    if "budgets" in has:
        objects += [budget(app, {"app": app}, draw.number(0, 2)) for app in ("web", "job")]
    if "quota" in has:
        objects += _device_quotas(draw)
    objects += _namespaces(draw)
    if "resource quotas" in has:
        objects += _resource_quotas(draw)
    parties = [party(draw, name, has) for name in ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")]
    now = draw.number(2, 5)
    objects += _once(objects, [each for made in parties[:now] for each in made])
    later = [*parties[now:], machine(draw, "node-new", has)]
    licenses = {CONTROLLER: Licenses(left=draw.number(0, 3))} if "negotiated" in has else {}
    if licenses and draw(0.4):
        licenses[CONTROLLER].refuses = {draw.of(nodes): "no fabric"}
    if licenses and draw(0.4):
        licenses[CONTROLLER].faults = _faults(draw)
    return World(number, has, _settings(draw, number, has), objects, draw.order(later), licenses)


def _drivers(draw: Draw) -> list[Object]:
    """DaemonSets that run drivers, as they say."""
    drivers = {"dra-extender.dev/drivers": draw.of([DRIVER, f"{DRIVER}, nic.example.com", "Driver"])}
    template = {"spec": {"nodeSelector": {"zone": draw.of("ab")}} if draw(0.5) else {}}
    found = raw("DaemonSet", "driver", namespace="kube-system", metadata={"annotations": drivers})
    return [found | {"spec": {"template": template}}] if draw(0.4) else []


def _features(draw: Draw, number: int) -> frozenset[str]:
    """The feature of this number, what it needs, and some more."""
    main = FEATURES[number % len(FEATURES)]
    more = [each for each in FEATURES if draw(_SHARES.get(each, 0.14))]
    found = {main, *more}
    return frozenset(found.union(*(NEEDED.get(each, set()) for each in found)))


def _once(there: list[Object], new: list[Object]) -> list[Object]:
    """The new objects, without those whose names are taken."""
    seen = {_place(each) for each in there}
    found = []
    for each in new:
        if _place(each) not in seen:
            seen.add(_place(each))
            found.append(each)
    return found


def _place(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _device_quotas(draw: Draw) -> list[Object]:
    limits = [
        {"name": "gpus", "deviceClassName": "gpu", "devices": draw.number(0, 3)},
        {"name": "memory", "deviceClassName": "gpu", "capacity": {"memory": draw.of(["40Gi", "100Gi", "200Gi"])}},
        {"name": "all", "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}], "devices": 4},
    ]
    cohort: Object = {"cohort": "research", "borrowing": True} if draw(0.5) else {}
    found = [raw("DeviceQuota", "gold", namespace="ns", spec={"limits": draw.some(limits, 1), **cohort})]
    if draw(0.6):
        found.append(raw("DeviceQuota", "iron", namespace="team", spec={"limits": draw.some(limits, 1), **cohort}))
    if draw(0.1):
        broken = {"limits": [{"name": "x", "deviceClassName": "gpu"}]}
        found.append(raw("DeviceQuota", "broken", namespace="ns", spec=broken))
    return found


def _namespaces(draw: Draw) -> list[Object]:
    labels = {"resource.kubernetes.io/admin-access": "true"} if draw(0.7) else {}
    return [raw("Namespace", name, metadata={"labels": labels}) for name in ("ns", "team")]


def _resource_quotas(draw: Draw) -> list[Object]:
    hard = {"gpu.deviceclass.resource.k8s.io/devices": draw.of("024"), "requests.example.com/gpu": "1", "pods": "20"}
    scopes = [
        {"scopes": draw.of([["BestEffort"], ["NotTerminating"], ["NotBestEffort"]])},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
    ]
    found = [raw("ResourceQuota", "hard", namespace="ns", spec={"hard": hard})]
    return [*found, raw("ResourceQuota", "scoped", namespace="ns", spec={"hard": {"pods": "3"}, **draw.of(scopes)})]


def _faults(draw: Draw) -> dict[str, list[Fault]]:
    """What befalls some questions to a controller."""
    faults = [
        Fault(),
        Fault(error="the connection was refused"),
        Fault(fault="HTTP 500: no database"),
        Fault(reply_lost="no answer within 2 s"),
        Fault(answer={"claims": "all"}),
    ]
    return {kind: draw.some(faults, 1, 3) for kind in draw.some([UNSUITABLE_NODES, ALLOCATE, DEALLOCATE], 1)}


def _settings(draw: Draw, number: int, has: frozenset[str]) -> dict[str, Any]:
    scheduling: dict[str, Any] = {
        "policy": POLICIES[(number + number // len(FEATURES)) % len(POLICIES)],
        "preemption": "preemption" in has or draw(0.5),
        "schedulerNames": ["dra-scheduler"] if draw(0.5) else [],
        "bestNodes": draw.of([None, None, None, 0, 1, 2]),
        "cpuOfAllPods": "cpu of all pods" in has,
        "maxSteps": 8 if "few steps" in has else 100_000,
    }
    if draw(0.2):
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        scheduling["shapes"] = [{"weight": 2, "requests": [{"name": "gpu", "exactly": exactly}]}]
    settings: dict[str, Any] = {
        "scheduling": scheduling,
        "featureGates": {gate: True for feature, gate in _GATES.items() if feature in has},
        "evictions": {"forPod": draw.of([1, 3, 32]), "ofNamespace": draw.of([2, 120]), "forNamespace": 120},
        "autoscaler": {"learnFromLabel": draw.of(["", "example.com/machine"])},
        "controllers": [],
    }
    if "negotiated" in has:
        share = {"name": CONTROLLER, "url": "http://localhost:1", "parameters": [PARAMETERS], "nodeLabels": ["zone"]}
        settings["controllers"].append(share | {"waitingShare": draw.of([0.1, 1.0])})
    if "contexts" in has:
        settings["controllers"].append({"name": CONTEXTS, "transport": "PodSchedulingContext"})
    return settings
