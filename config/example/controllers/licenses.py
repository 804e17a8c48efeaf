"""A controller of floating licenses: each site has some, and a pod takes as many as its claim asks for.

Run it beside the service: python config/example/controllers/licenses.py site-a=2 site-b=5
"""

import sys
from collections.abc import Mapping, Sequence

from extender.controllers import ClaimAsk, Held, NodeName, RefusedError, serve, serve_contexts

SITE = "topology.kubernetes.io/zone"


class Licenses:
    def __init__(self, sites: Mapping[str, int]) -> None:
        self.sites = sites

    def left(self, site: str, held: Sequence[Held]) -> int:
        return self.sites.get(site, 0) - sum(count(each.claim) for each in held if site_of(each.node) == site)

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> dict[str, str]:
        full = [node for node in nodes if self.left(site_of(node), held) < count(claim)]
        return {node.name: f"too few licenses are left at site {site_of(node)}" for node in full}

    def allocate(self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool) -> dict[str, object]:
        if self.left(site_of(node), held) < count(claim):
            raise RefusedError(f"too few licenses are left at site {site_of(node)}")
        here = {"key": SITE, "operator": "In", "values": [site_of(node)]}  # another site has other licenses
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}

    def deallocate(self, held: Held) -> None:
        """The kit remembers what is allocated; there is nothing else to give back."""


def count(claim: ClaimAsk) -> int:
    return sum(int(str(request.get("count", 1))) for request in claim.requests)


def site_of(node: NodeName) -> str:
    return node.labels.get(SITE, "")


if __name__ == "__main__":
    given = [each.partition("=") for each in sys.argv[1:] if each != "--contexts"]
    licenses = Licenses({site: int(n) for site, _, n in given})
    if "--contexts" in sys.argv:
        serve_contexts(licenses, "licenses.json", "licenses.example.com")
    else:
        serve(licenses, "licenses.json")
