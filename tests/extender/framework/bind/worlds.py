"""A small cluster in which pods compete for devices, and a check that holds at any moment, whatever fails."""

from typing import Final

from allocator import parse_node, selector_matches
from allocator.audit import device_findings
from extender.cluster.objects.claims import SPECIAL, parse_claim_object
from extender.kube.api import RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, NODES, PODS, Resource
from extender.lab.api import MemoryApi
from tests.kit.clusters import claim, device_class, local_slice, network_slice, node, pod
from tests.kit.servers.memory import memory_api

CLAIMS_OF = {"p": ["a"], "q": ["b", "shared"], "r": ["shared"], "s": ["c", "d"], "t": ["e"]}

PINNED: Final = frozenset("z")
"""Pods whose author chose their node: kubelet does not start them before their claims are reserved."""


def cluster() -> MemoryApi:
    nodes = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 1), network_slice("net", 1), device_class()]
    names = sorted({name for names in CLAIMS_OF.values() for name in names})
    return memory_api(*nodes, *map(claim, names), *(pod(name, *claims) for name, claims in CLAIMS_OF.items()))


async def everything(api: MemoryApi, resource: Resource) -> dict[str, RawObject]:
    return {raw["metadata"]["name"]: raw for raw in (await api.list(resource)).items}


async def check(api: MemoryApi) -> None:
    """Assert what holds at any moment, whatever fails.

    The claims of bound pods are allocated and reserved for them, and no device of these claims is allocated twice.
    """
    pods, claims, nodes = [await everything(api, resource) for resource in (PODS, CLAIMS, NODES)]
    used = set()
    for name, raw in pods.items():
        bound = raw["spec"].get("nodeName")
        for claim_name in claims_used(raw) if bound else ():
            if name in PINNED and not _is_reserved(claims.get(claim_name, {}), f"uid-{name}"):
                continue
            assert claim_name in claims, f"pod {name} is bound without claim {claim_name}"
            group = (raw["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
            assert _is_reserved(claims[claim_name], f"uid-{name}", f"uid-{group}"), (
                f"pod {name} is bound, claim {claim_name} is not reserved for it"
            )
            selector = parse_claim_object(claims[claim_name]).claim.allocation
            assert selector is not None, f"pod {name} is bound, claim {claim_name} is not allocated"
            if selector.node_selector is not None:
                assert selector_matches(selector.node_selector, parse_node(nodes[bound]))
            used.add(claim_name)
    for name, raw in claims.items():
        if raw.get("status", {}).get("allocation") and not is_special(raw):
            assert FINALIZER in raw["metadata"]["finalizers"], name
    assert device_findings([parse_claim_object(claims[name]).claim for name in sorted(used)], []) == ()


def _is_reserved(claim: RawObject, *uids: str) -> bool:
    return any(user["uid"] in uids for user in (claim.get("status") or {}).get("reservedFor") or [])


def claims_used(pod: RawObject) -> list[str]:
    """The claims that a pod names: by their names, and the one for its extended resources."""
    names = [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims") or []]
    special = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return [*names, special["resourceClaimName"]] if special else names


def is_special(claim: RawObject) -> bool:
    """A claim for extended resources; it loses its finalizer before it is deleted."""
    return (claim["metadata"].get("annotations") or {}).get(SPECIAL) == "true"
