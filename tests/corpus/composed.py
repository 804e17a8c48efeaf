"""A controller of negotiated claims that is asked by PodSchedulingContexts: it composes hardware for some nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocator.tools import JSON
from extender.controllers import ClaimAsk, Held, NodeName, RefusedError


@dataclass
class Fabric:
    """Implements `extender.controllers.Controller`.

    Attributes:
        left: how many claims it can serve.
        refuses: nodes that it does not reach.
    """

    left: int
    refuses: frozenset[str]

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> Mapping[str, str]:
        others = [each for each in held if each.claim.uid != claim.uid]
        is_full = len(others) >= self.left
        return {each.name: "no fabric" for each in nodes if is_full or each.name in self.refuses}

    def allocate(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool
    ) -> Mapping[str, JSON]:
        del simulation
        if len(held) >= self.left or node.name in self.refuses:
            raise RefusedError("no fabric")
        opaque: JSON = {"driver": "contexts.example.com", "parameters": {"node": node.name}}
        requests: list[JSON] = [str(each["name"]) for each in claim.requests]
        return {"devices": {"config": [{"source": "FromClaim", "requests": requests, "opaque": opaque}]}}

    def deallocate(self, held: Held) -> None:
        """Nothing is kept here: the store knows what is allocated."""
