"""A controller for tests: floating licenses, with faults that befall its answers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator import AllocatedConfig, AllocationResult, DeviceId, DeviceResult, allocation_to_json
from allocator.model.allocations import OpaqueConfig
from allocator.tools import printable
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    ControllerAwayError,
    ControllerError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    ProtocolError,
    answer_of,
    question_of,
    question_to_json,
)

NO_LICENSE = "no license is left"


@dataclass
class Fault:
    """What befalls one question.

    Attributes:
        error: the controller does not answer, and does nothing.
        fault: it answers with this error, and does nothing.
        reply_lost: it does what it is asked to do, and its answer is lost.
        answer: it answers this, and does nothing.
        until: it answers only then.
    """

    error: str = ""
    fault: str = ""
    reply_lost: str = ""
    answer: Mapping[str, object] | None = None
    until: asyncio.Event | None = None


@dataclass
class Licenses:
    """A controller with some licenses; implements `extender.plugins.negotiation.protocol.Controller`.

    Attributes:
        left: licenses that nobody has.
        refuses: nodes that it refuses, with the reasons.
        held: by uid of the claim, the node and the attempt.
        ended: by uid of the claim, the attempt of the latest release.
        faults: by question, for the next questions.
        questions: all questions.
        device: a device that each allocation names; None: allocations have configuration only.
        local: whether an allocation is for its node only.
    """

    left: int = 1
    refuses: dict[str, str] = field(default_factory=dict)
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    questions: list[NegotiatedQuestion] = field(default_factory=list)
    device: DeviceId | None = None
    version: str = ""
    closed: int = 0

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        question = question_of(question.kind, question_to_json(question))
        self.questions.append(question)
        fault = self.faults[question.kind].pop(0) if self.faults.get(question.kind) else Fault()
        if fault.until is not None:
            await fault.until.wait()
        if fault.error:
            raise ControllerAwayError(fault.error)
        if fault.fault:
            raise ControllerError(fault.fault)
        if fault.answer is not None:
            try:
                return answer_of(question, fault.answer)
            except ProtocolError as error:
                raise ControllerError(f"wrong answer: {error}") from error
        answer = {UNSUITABLE_NODES: self._unsuitable, ALLOCATE: self._allocate, DEALLOCATE: self._deallocate}[
            question.kind
        ](question)
        if fault.reply_lost:
            raise ControllerAwayError(fault.reply_lost)
        return answer_of(question, answer_to_json(answer))

    async def close(self) -> None:
        self.closed += 1

    def asked(self, kind: str) -> list[NegotiatedQuestion]:
        return [each for each in self.questions if each.kind == kind]

    def _free(self, question: NegotiatedQuestion) -> int:
        return self.left - len(question.held)

    def _unsuitable(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        reasons = {
            node.name: printable(self.refuses[node.name]) for node in question.nodes if node.name in self.refuses
        }
        if self._free(question) < len(question.claims):
            reasons = {node.name: printable(NO_LICENSE) for node in question.nodes}
        return NegotiatedAnswer(self.version, {each.uid: reasons for each in question.claims})

    def _allocate(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        node, results = question.nodes[0].name, {}
        for each in question.claims:
            known = self.held.get(each.uid)
            assert known is None or known[0] == node, f"claim {each} is allocated twice"
            if each.attempt <= self.ended.get(each.uid, 0):
                return NegotiatedAnswer(self.version, refused=printable("this attempt is overtaken"))
            if known is None and (self._free(question) < 1 or node in self.refuses):
                return NegotiatedAnswer(self.version, refused=printable(self.refuses.get(node, NO_LICENSE)))
            if not question.simulation:
                self.left -= known is None
                self.held[each.uid] = (node, each.attempt)
            results[each.uid] = self._result(str(each.requests[0]["name"]), node)
        return NegotiatedAnswer(self.version, allocations=results)

    def _deallocate(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        overtaken = {}
        for each in question.claims:
            latest = max(self.ended.get(each.uid, 0), self.held.get(each.uid, ("", 0))[1])
            if latest > each.attempt:
                overtaken[each.uid] = latest
                continue
            self.ended[each.uid] = each.attempt
            if self.held.pop(each.uid, None):
                self.left += 1
        return NegotiatedAnswer(self.version, overtaken=overtaken)

    def _result(self, request: str, node: str) -> AllocationResult:
        config = AllocatedConfig("FromClaim", OpaqueConfig("licenses.example.com", f'{{"node":"{node}"}}'), (request,))
        results = (DeviceResult(request, self.device),) if self.device else ()
        return AllocationResult(results=results, configs=(config,))


def answer_to_json(answer: NegotiatedAnswer) -> dict[str, Any]:
    """An answer as a controller writes it."""
    found: dict[str, Any] = {"version": answer.version} if answer.version else {}
    if answer.refused:
        found["refused"] = answer.refused
    uids = dict.fromkeys((*answer.unsuitable, *answer.allocations, *answer.overtaken))
    found["claims"] = [_entry(uid, answer) for uid in uids]
    return found


def _entry(uid: str, answer: NegotiatedAnswer) -> dict[str, Any]:
    entry: dict[str, Any] = {"uid": uid}
    if uid in answer.unsuitable:
        entry["unsuitableNodes"] = dict(answer.unsuitable[uid])
    if uid in answer.allocations:
        entry["allocation"] = allocation_to_json(answer.allocations[uid])
    if uid in answer.overtaken:
        entry["attempt"] = answer.overtaken[uid]
    return entry
