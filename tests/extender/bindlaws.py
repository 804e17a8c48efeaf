"""A small cluster in which pods compete for devices, and what holds in it at any moment, whatever fails."""

from allocator.audit import device_findings
from allocator.nodes import selector_matches
from allocator.parse import parse_node
from extender.cluster.api import CLAIMS, NODES, PODS, RawObject, Resource
from extender.cluster.memory import MemoryApi
from extender.cluster.objects import parse_claim_object
from extender.cluster.reservation import FINALIZER
from tests.extender.apis import memory_api
from tests.extender.clusters import claim, device_class, local_slice, network_slice, node, pod

CLAIMS_OF = {"p": ["a"], "q": ["b", "shared"], "r": ["shared"], "s": ["c", "d"], "t": ["e"]}


def cluster() -> MemoryApi:
    nodes = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 1), network_slice("net", 1), device_class()]
    names = sorted({name for names in CLAIMS_OF.values() for name in names})
    return memory_api(*nodes, *map(claim, names), *(pod(name, *claims) for name, claims in CLAIMS_OF.items()))


async def everything(api: MemoryApi, resource: Resource) -> dict[str, RawObject]:
    return {raw["metadata"]["name"]: raw for raw in (await api.list(resource)).items}


async def check(api: MemoryApi) -> None:
    """What holds at any moment, whatever fails."""
    pods, claims, nodes = [await everything(api, resource) for resource in (PODS, CLAIMS, NODES)]
    used = set()
    for name, raw in pods.items():
        bound = raw["spec"].get("nodeName")
        for claim_name in CLAIMS_OF[name] if bound else ():
            status = claims[claim_name]["status"]
            assert f"uid-{name}" in [consumer["uid"] for consumer in status["reservedFor"]]
            selector = parse_claim_object(claims[claim_name]).claim.allocation
            assert selector is not None
            if selector.node_selector is not None:
                assert selector_matches(selector.node_selector, parse_node(nodes[bound]))
            used.add(claim_name)
    for name, raw in claims.items():
        if raw.get("status", {}).get("allocation"):
            assert FINALIZER in raw["metadata"]["finalizers"], name
    assert device_findings([parse_claim_object(claims[name]).claim for name in sorted(used)], []) == ()
