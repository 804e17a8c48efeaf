"""What is created under a ResourceQuota, step by step: for the real API server and for ours in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.api import Api, ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, QUOTAS
from tests.kit.controlplane.extended import SPECIAL, box
from tests.kit.objects.manifests import claim, pod, request, requests
from tests.kit.objects.quotas import resource_quota

SERVED: Final = "quota-gpu"
"""A class that serves an extended resource."""

PLAIN: Final = "quota-nic"
"""A class that serves none."""

RESOURCE: Final = "quota.example.com/gpu"
IMPLICIT: Final = f"deviceclass.resource.kubernetes.io/{SERVED}"
IMPLICIT_PLAIN: Final = f"deviceclass.resource.kubernetes.io/{PLAIN}"

GPUS: Final = f"{SERVED}.deviceclass.resource.k8s.io/devices"
NICS: Final = f"{PLAIN}.deviceclass.resource.k8s.io/devices"
CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"


def claim_for(name: str, *asked: RawObject) -> RawObject:
    """A claim. Its namespace is set later, like the namespace of all objects here."""
    return claim("", name, requests(*(asked or [request("gpu", SERVED)])))


def several(name: str, count: int, device_class: str = SERVED, **exactly: Any) -> RawObject:
    """A claim for this number of devices."""
    return claim_for(name, request("gpu", device_class, count=count, **exactly))


def every(name: str) -> RawObject:
    """A claim for all devices."""
    return claim_for(name, {"name": "gpu", "exactly": {"deviceClassName": SERVED, "allocationMode": "All"}})


def first_of(name: str, *ways: tuple[str, int | str]) -> RawObject:
    """A claim for the first available of some classes; instead of a number, ``All``."""
    alternatives = [
        {"name": f"way-{index}", "deviceClassName": of, "allocationMode": "All"}
        if amount == "All"
        else {"name": f"way-{index}", "deviceClassName": of, "count": amount}
        for index, (of, amount) in enumerate(ways)
    ]
    return claim_for(name, {"name": "gpu", "firstAvailable": alternatives})


def running(name: str, *containers: RawObject, init: Sequence[RawObject] = (), **spec: Any) -> RawObject:
    """A pod that no scheduler looks at."""
    made = pod("", name, scheduler="nobody", **spec)
    return {**made, "spec": {**made["spec"], "containers": list(containers), "initContainers": list(init)}}


def wanting(name: str, amount: str = "1", resource: str = RESOURCE, **spec: Any) -> RawObject:
    """A pod of one container with an extended resource."""
    return running(name, box("main", **{resource: amount}), **spec)


def special(name: str, owner: str, count: int = 1, device_class: str = SERVED) -> RawObject:
    """A special claim of a pod."""
    made = several(name, count, device_class)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": "", "controller": True}
    metadata = {**made["metadata"], "annotations": {SPECIAL: "true"}, "ownerReferences": [reference]}
    return {**made, "metadata": metadata}


@dataclass(frozen=True)
class Case:
    """Quotas, and objects that are created one after the other.

    Attributes:
        hard: the limits of each quota, the first is called ``quota-0``.
        objects: in order.
        refused: names of the objects that are refused.
        spec: further fields of the quotas' specs.
    """

    hard: Sequence[dict[str, str]]
    objects: Sequence[RawObject]
    refused: Sequence[str]
    spec: RawObject | None = None

    def quotas(self, namespace: str) -> list[RawObject]:
        return [
            resource_quota(each, namespace=namespace, name=f"quota-{i}", **(self.spec or {}))
            for i, each in enumerate(self.hard)
        ]


CASES: Final[dict[str, Case]] = {
    "claims are counted": Case([{CLAIM_COUNT: "1"}], [claim_for("a"), claim_for("b")], ["b"]),
    "the devices of a class, in all requests": Case(
        [{GPUS: "3"}],
        [claim_for("a", request("x", SERVED, count=2), request("y", SERVED)), claim_for("b"), several("c", 9, PLAIN)],
        ["b"],
    ),
    "a claim that fits no more leaves room for a smaller one": Case(
        [{GPUS: "4"}], [several("a", 3), several("b", 2), several("c", 1)], ["b"]
    ),
    "all devices count as many as a claim can hold": Case([{GPUS: "32"}], [every("a"), claim_for("b")], ["b"]),
    "of alternatives, the most of each class counts": Case(
        [{GPUS: "4", NICS: "8"}],
        [first_of("a", (SERVED, 3), (PLAIN, 8), (SERVED, 2)), several("b", 2), several("c", 1), several("d", 1, PLAIN)],
        ["b", "d"],
    ),
    "an alternative for all devices": Case([{GPUS: "31"}], [first_of("a", (PLAIN, 1), (SERVED, "All"))], ["a"]),
    "a quota of zero": Case([{GPUS: "0"}], [claim_for("a"), several("b", 1, PLAIN)], ["a"]),
    "claims count as extended resources of their class": Case(
        [{f"requests.{RESOURCE}": "1"}], [claim_for("a"), claim_for("b"), several("c", 1, PLAIN)], ["b"]
    ),
    "and by its implicit name": Case([{f"requests.{IMPLICIT}": "1"}], [claim_for("a"), claim_for("b")], ["b"]),
    "also if the class serves no other extended resource": Case(
        [{f"requests.{IMPLICIT_PLAIN}": "1"}], [several("a", 9, PLAIN), several("b", 1, PLAIN)], ["a"]
    ),
    "but not if the class does not exist": Case(
        [{"requests.deviceclass.resource.kubernetes.io/none": "1"}], [several("a", 9, "none")], []
    ),
    "unless the quota has something else about claims": Case(
        [{"requests.deviceclass.resource.kubernetes.io/none": "1", CLAIM_COUNT: "9"}], [several("a", 9, "none")], ["a"]
    ),
    "an extended resource that no class serves is not about claims": Case(
        [{"requests.other.example.com/gpu": "1"}], [claim_for("a"), wanting("p", "2", "other.example.com/gpu")], ["p"]
    ),
    "pods and claims count together": Case(
        [{f"requests.{RESOURCE}": "2"}], [claim_for("a"), wanting("p"), wanting("q"), claim_for("b")], ["q", "b"]
    ),
    "pods that ask by the implicit name": Case(
        [{f"requests.{IMPLICIT}": "1", f"requests.{RESOURCE}": "1"}],
        [wanting("p", "1", IMPLICIT), wanting("q", "1", IMPLICIT), wanting("r", "1"), claim_for("a")],
        ["q", "a"],
    ),
    "a pod counts at its peak": Case(
        [{f"requests.{RESOURCE}": "5"}],
        [
            running("p", box("m", **{RESOURCE: "1"}), box("n", **{RESOURCE: "1"}), init=[box("i", **{RESOURCE: "3"})]),
            running(
                "q", box("m", **{RESOURCE: "1"}), init=[{**box("i", **{RESOURCE: "1"}), "restartPolicy": "Always"}]
            ),
            wanting("r"),
        ],
        ["r"],
    ),
    "a special claim counts as a claim, and not again as its pod's resource": Case(
        [{CLAIM_COUNT: "1", GPUS: "1", f"requests.{RESOURCE}": "1"}],
        [wanting("p"), special("p-special", "p"), wanting("q"), claim_for("a")],
        ["q", "a"],
    ),
    "a special claim counts by the implicit name, which its pod has not used": Case(
        [{f"requests.{IMPLICIT}": "1"}], [wanting("p", "2"), special("s", "p", 2)], ["s"]
    ),
    "a special claim for more than its pod counts for the rest": Case(
        [{f"requests.{RESOURCE}": "3"}], [wanting("p", "1"), special("s", "p", 3), claim_for("a")], ["a"]
    ),
    "of two special claims the second counts in full": Case(
        [{f"requests.{RESOURCE}": "1"}], [wanting("p"), special("s", "p"), special("t", "p")], ["t"]
    ),
    "of two quotas the one that is exceeded says why": Case(
        [{GPUS: "9"}, {CLAIM_COUNT: "1"}], [claim_for("a"), claim_for("b")], ["b"]
    ),
    "all that is exceeded is named": Case(
        [{GPUS: "1", CLAIM_COUNT: "1", f"requests.{RESOURCE}": "1"}], [claim_for("a"), claim_for("b")], ["b"]
    ),
    "claims are in no scope": Case(
        [{GPUS: "0", f"requests.{RESOURCE}": "0"}], [claim_for("a"), wanting("p")], ["p"], {"scopes": ["BestEffort"]}
    ),
    "a scope that a pod is not in": Case(
        [{f"requests.{RESOURCE}": "0"}],
        [wanting("p"), wanting("q", activeDeadlineSeconds=60)],
        ["q"],
        {"scopes": ["Terminating"]},
    ),
    "pods of a priority class": Case(
        [{f"requests.{RESOURCE}": "0"}],
        [wanting("p"), wanting("q", priorityClassName="system-node-critical")],
        ["p"],
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["system-node-critical"]}
                ]
            }
        },
    ),
}  # fmt: skip


async def created(api: Api, namespace: str, objects: Sequence[RawObject]) -> dict[str, str]:
    """Create objects in a namespace; the refusals, by the name of the object."""
    refused: dict[str, str] = {}
    for each in objects:
        metadata = {**each["metadata"], "namespace": namespace}
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = await _uid(api, ObjectKey(namespace, owner["name"]))
        try:
            await api.create(PODS if each["kind"] == PODS.kind else CLAIMS, {**each, "metadata": metadata})
        except ApiError as error:
            if not error.is_over_quota:
                raise
            refused[metadata["name"]] = str(error)
    return refused


async def used(api: Api, namespace: str) -> dict[str, dict[str, str]]:
    """What the statuses of all quotas of a namespace say, by name of the quota."""
    return {
        each["metadata"]["name"]: each.get("status", {}).get("used", {})
        for each in await api.select(QUOTAS, namespace, {})
    }


async def _uid(api: Api, key: ObjectKey) -> str:
    try:
        return str((await api.get(PODS, key))["metadata"]["uid"])
    except ApiError:
        return "uid-of-nobody"
