"""Random cases about the consumers of claims: pods and PodGroups (gate DRAWorkloadResourceClaims)."""

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import consumer_of
from extender.cluster.objects.pods import parse_pod
from extender.framework.pods.claims import is_made_for
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, POD_GROUPS

Json = dict[str, Any]

_GROUPS: Final = ("team", "other", "")
_VERSIONS: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.example.com/v1", "v1")


def random_case(seed: int) -> Json:
    """A pod that uses a claim by its first entry, with its PodGroup, if that exists, as JSON of the API."""
    random = Random(seed)
    name, entry = random.choice(_GROUPS), _entry(random)
    spec: Json = {"containers": [], "resourceClaims": [entry]}
    statuses = [{"name": entry["name"], "resourceClaimName": "c"}] if "resourceClaimTemplateName" in entry else []
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "ns", "name": "p", "uid": "uid-p"},
        "spec": spec | ({"schedulingGroup": {"podGroupName": name}} if name else {}),
        "status": {"resourceClaimStatuses": statuses},
    }
    group = _group(random, name) if name and random.random() < 0.9 else None
    return {"name": f"seed {seed}", "pod": pod, "podGroup": group, "claim": _claim(random)}


def run_case(case: Json) -> str | None:
    """What we answer in another way than upstream; None if nothing."""
    state, actual = ClusterState(has_group_claims=True), case["actual"]
    state.apply(Event(EventType.ADDED, CLAIMS, case["claim"]))
    if case["podGroup"] is not None:
        state.apply(Event(EventType.ADDED, POD_GROUPS, case["podGroup"]))
    assert not state.snapshot.problems
    pod, claim = parse_pod(case["pod"]), state.snapshot.claims[ObjectKey("ns", "c")].claim
    found = consumer_of(pod, claim, state.snapshot)
    consumer = {"apiGroup": found.api_group, "resource": found.resource, "name": found.name, "uid": found.uid}
    ours = {
        "consumer": {name: value for name, value in consumer.items() if value},
        "isForPod": is_made_for(pod, claim),
        "isReserved": claim.is_reserved_for(pod.uid, pod.pod_group),
    }
    return None if ours == actual else f"we say {ours}, upstream says {actual}"


def outcomes(case: Json) -> list[str]:
    """What upstream answered."""
    actual: Mapping[str, Any] = case["actual"]
    flags = [name for name in ("isForPod", "isReserved") if actual[name]]
    return [actual["consumer"]["resource"], *flags]


def _entry(random: Random) -> Json:
    source = random.choice([{"resourceClaimName": "c"}, {"resourceClaimTemplateName": random.choice("st")}])
    return {"name": random.choice("xy"), **source}


def _group(random: Random, name: str) -> Json:
    entries = {each["name"]: each for each in (_entry(random) for _ in range(random.randint(0, 2)))}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(entries.values())},
    }


def _claim(random: Random) -> Json:
    kind, version = random.choice(("PodGroup", "PodGroup", "Pod", "Job")), random.choice(_VERSIONS)
    name = random.choice(("team", "other", "p"))
    # No two objects have one uid.
    uid = f"uid-{name}" if (kind == "Pod") == (name == "p") else "uid-of-another"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    owners = [owner | {"controller": random.random() < 0.9}] if random.random() < 0.8 else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": "c", "uid": "uid-c", "ownerReferences": owners},
        "spec": {"devices": {}},
        "status": {"reservedFor": [_consumer(random, number) for number in range(random.randint(0, 2))]},
    }


def _consumer(random: Random, number: int) -> Json:
    name = random.choice(("team", "other", "p", "q"))
    uid = f"uid-{name}" if random.random() < 0.8 else f"uid-{number}"
    of_group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
    kind = random.choice([of_group, {"resource": "pods"}, {"resource": "podgroups"}, {**of_group, "resource": "pods"}])
    return {**kind, "name": name, "uid": uid}
