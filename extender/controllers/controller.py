"""A controller: the class of three methods that a driver's author writes, and the responder that asks it.

The kit knows the protocol. The responder remembers what is allocated, and ignores questions that are overtaken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from allocator.tools import JSON
from extender.controllers.store import Entry, Store
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    ClaimAsk,
    NegotiatedQuestion,
    NodeName,
    Object,
    answer_of,
)


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


@dataclass(slots=True)
class Responder:
    """Answers one question at a time.

    Attributes:
        controller: decides.
        store: what is allocated.
    """

    controller: Controller
    store: Store

    def answer(self, question: NegotiatedQuestion) -> Object:
        """The answer to a question, as JSON.

        Raises:
            ProtocolError: the controller has allocated something that the protocol does not allow.
        """
        if question.kind == DEALLOCATE:
            return {"claims": [entry for each in question.claims if (entry := self._deallocate(each))]}
        held = self._held_elsewhere(question)
        if question.kind == ALLOCATE:
            return self._allocate(question, held)
        nodes = question.nodes
        claims = [
            {"uid": each.uid, "unsuitableNodes": dict(self.controller.unsuitable_nodes(each, nodes, held))}
            for each in question.claims
        ]
        return {"claims": claims}

    def _held_elsewhere(self, question: NegotiatedQuestion) -> list[Held]:
        found = [Held(each.claim, each.node) for each in self.store.allocated.values()]
        return [*found, *(Held(claim, node) for claim, node in question.held)]

    def _allocate(self, question: NegotiatedQuestion, held: Sequence[Held]) -> Object:
        """All claims, or none: what was allocated for this question is given back if a claim is refused."""
        node, found = question.nodes[0], []
        made: list[ClaimAsk] = []
        try:
            for each in question.claims:
                allocation = self._earlier_allocation(each, node)
                if allocation is None:
                    others = [other for other in held if other.claim.uid != each.uid]
                    others += [Held(done, node) for done in made]
                    allocation = self._allocate_anew(each, node, others, question)
                    made.append(each)
                found.append({"uid": each.uid, "allocation": allocation})
        except RefusedError as error:
            for each in () if question.simulation else made:
                self.controller.deallocate(Held(each, node))
                self.store.release(each.uid, each.attempt)
            return {"refused": str(error), "claims": []}
        return {"claims": found}

    def _earlier_allocation(self, claim: ClaimAsk, node: NodeName) -> Mapping[str, JSON] | None:
        """What is allocated for the claim already; None also if an allocation was begun and did not end."""
        if claim.attempt and claim.attempt <= self.store.released.get(claim.uid, 0):
            raise RefusedError("this attempt is overtaken")
        entry = self.store.allocated.get(claim.uid)
        if entry is not None and entry.node.name != node.name:
            raise RefusedError(f"the claim is allocated for node {entry.node.name}")
        return None if entry is None else entry.allocation

    def _allocate_anew(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], question: NegotiatedQuestion
    ) -> Mapping[str, JSON]:
        """Allocate a claim. The store knows of it before anything changes outside, so that a crash leaves no leak."""
        before = self.store.allocated.get(claim.uid)
        if not question.simulation:
            self.store.allocate(claim.uid, Entry(claim, node))
        try:
            allocation = dict(self.controller.allocate(claim, node, held, simulation=question.simulation))
        except RefusedError:
            if not question.simulation:
                if before is not None:  # an earlier try did not end: it may have changed something outside
                    self.controller.deallocate(Held(claim, node))
                self.store.release(claim.uid, claim.attempt)
            raise
        answer_of(NegotiatedQuestion(ALLOCATE, (claim,)), {"claims": [{"uid": claim.uid, "allocation": allocation}]})
        if not question.simulation:
            self.store.allocate(claim.uid, Entry(claim, node, allocation))
        return allocation

    def _deallocate(self, claim: ClaimAsk) -> Object | None:
        """Give back what is allocated for a claim, unless a later attempt is known: then the answer tells it."""
        entry = self.store.allocated.get(claim.uid)
        known = max(self.store.released.get(claim.uid, 0), 0 if entry is None else entry.claim.attempt)
        if known > claim.attempt:
            return {"uid": claim.uid, "attempt": known}
        if entry is not None:
            self.controller.deallocate(Held(entry.claim, entry.node))
        self.store.release(claim.uid, claim.attempt)
        return None
