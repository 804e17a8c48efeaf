"""The class that a driver's author writes: three methods. The kit knows the protocol, and what is allocated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from allocator.tools import JSON
from extender.negotiation.protocol import ClaimAsk, NodeName


class RefusedError(Exception):
    """Nothing is allocated for the pod; the text is the reason, at most 200 characters."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that is allocated for a node."""

    claim: ClaimAsk
    node: NodeName


class Controller(Protocol):
    """Decides where claims can be allocated. The kit calls one method at a time.

    ``held`` is what is allocated now; in a simulation, what is allocated there as well.
    """

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> Mapping[str, str]:
        """The nodes for which the claim cannot be allocated, by name, with the reasons."""
        ...

    def allocate(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool
    ) -> Mapping[str, JSON]:
        """The allocation of a claim for a node, in the form of ``status.allocation``; ``{}`` says nothing more.

        It may be called again for the same claim after a crash. In a simulation, nothing may be changed outside.

        Raises:
            RefusedError: the claim cannot be allocated for the node.
        """
        ...

    def deallocate(self, held: Held) -> None:
        """Give back what is allocated for a claim.

        It may be called again for the same claim after a crash, and for a claim whose `allocate` did not end: then
        all, a part or nothing of it is allocated outside.
        """
        ...
