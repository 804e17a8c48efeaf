"""Controllers that the settings name, with what is known of each: its version, and since when it is away."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from extender.kube.raw import timestamp
from extender.negotiation.controller import Controller, ControllerAwayError, ControllerError, ControllerPendingError
from extender.negotiation.parameters import ParameterReader
from extender.negotiation.protocol import ClaimAsk, NegotiatedAnswer, NegotiatedQuestion
from extender.negotiation.questions import claim_ask
from extender.pods.negotiated_claims import NegotiatedClaim

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Pauses between tries of a controller that is away. Each failed try doubles the pause."""


class QuestionMetrics(Protocol):
    """Is told how controllers answer, for metrics."""

    def asked(self, controller: str, kind: str, code: str, seconds: float) -> None:
        """A question was asked; ``code``: ok, refused, pending or error."""
        ...


@dataclass(slots=True)
class KnownController:
    """One controller.

    Attributes:
        name: as device classes name it.
        controller: is asked.
        labels: the labels of nodes that it is told.
        allocation_seconds: how long an allocation may take.
        clock: measures durations, in seconds.
        now: the time.
        metrics: is told of each question.
        parameters: reads the objects that claims name for it; None: it reads them itself.
        writes_claims: it writes allocations into claims itself, so it serves all requests of a claim.
        version: of its latest answer.
        problem: why it is away, and since when; empty if it is not.
    """

    name: str
    controller: Controller
    labels: tuple[str, ...]
    allocation_seconds: float
    clock: Callable[[], float]
    now: Callable[[], datetime]
    metrics: QuestionMetrics
    parameters: ParameterReader | None
    writes_claims: bool = False
    version: str = ""
    problem: str = ""
    since: datetime | None = None
    _again: float = 0.0
    _pause: float = _PAUSE_SECONDS

    @property
    def is_paused(self) -> bool:
        """Whether it is away, and is not asked again yet."""
        return bool(self.problem) and self.clock() < self._again

    async def about(self, claim: NegotiatedClaim, attempt: int = 0) -> ClaimAsk:
        """A claim in a question to it. Raises ParametersError: its parameters cannot be handed over."""
        return claim_ask(claim, attempt, () if self.parameters is None else await self.parameters.of(claim))

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer to a question.

        Raises:
            ControllerAwayError: there is none, and other questions are better asked after a pause.
            ControllerPendingError: there is none yet.
            ControllerError: there is none.
        """
        began, code = self.clock(), "error"
        try:
            answer = await self.controller.ask(question)
            code = "refused" if answer.refused else "ok"
        except ControllerAwayError as error:
            self._fail(str(error))
            raise
        except ControllerPendingError:
            code = "pending"
            self._answers()
            raise
        except ControllerError:
            self._answers()
            raise
        finally:
            self.metrics.asked(self.name, question.kind, code, self.clock() - began)
        self._answers()
        self.version = answer.version
        return answer

    def _answers(self) -> None:
        self.problem, self.since, self._pause = "", None, _PAUSE_SECONDS

    def _fail(self, text: str) -> None:
        if self.since is None:
            self.since = self.now()
        self.problem = f"waiting for controller {self.name} since {timestamp(self.since)}: {text}"
        self._again = self.clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def problem_of(self, claim: NegotiatedClaim) -> str:
        """Why it cannot serve a claim as it is written; empty if it can."""
        if not (self.writes_claims and claim.has_rest):
            return ""
        others = ", ".join(each.name for each in claim.rest.claim.spec.requests)
        text = f"spec.devices.requests: controller {self.name} serves all requests of a claim or none, and not {others}"
        return f"claim {claim.claim.claim.name}: {text}"
