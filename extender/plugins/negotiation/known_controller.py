"""Controllers that the settings name, with what is known of each: its version, its pace, and since when it is away."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from allocator.tools import NO_TEXT, Printable, printable
from extender.cluster.writes.claims import ClaimWrites
from extender.config.settings import ControllerSettings
from extender.framework.pods.negotiated_claims import NegotiatedClaim, awaited
from extender.kube.api import timestamp
from extender.plugins.negotiation.protocol import (
    UNSUITABLE_NODES,
    ClaimAsk,
    Controller,
    ControllerAwayError,
    ControllerError,
    ControllerPendingError,
    NegotiatedAnswer,
    NegotiatedQuestion,
)
from extender.plugins.negotiation.questions import ParameterReader, claim_ask
from extender.plugins.negotiation.scheduling_contexts import ContextController, Contexts
from extender.tools.fairness import WaitingBudget
from extender.tools.intake import Budget

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Pauses between tries of a controller that is away. Each failed try doubles the pause."""

MOST_AT_ONCE: Final = 8
"""Questions about nodes that one controller is asked at the same time in the background."""

_QUESTION_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets for times of questions."""


class ControllerMetrics:
    """Metrics by controller: what each is asked, and who waits for it.

    Args:
        registry: has the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration = Histogram(
            "dra_extender_controller_question_duration_seconds",
            "Time of a question to a controller, by question and code (ok, refused, pending or error).",
            ("controller", "question", "code"),
            buckets=_QUESTION_SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            "dra_extender_controller_waiting_pods",
            "Rejected pods that a controller keeps from nodes.",
            ("controller",),
            registry=registry,
        )
        self._waited = Counter(
            "dra_extender_controller_scheduler_wait_seconds_total",
            "Time that schedulers have waited in filter for answers of a controller.",
            ("controller",),
            registry=registry,
        )
        self._deferred = Counter(
            "dra_extender_controller_deferred_answers_total",
            "Filter calls that did not wait for the answer of a controller, because its waitingShare was spent.",
            ("controller",),
            registry=registry,
        )
        self._up = Gauge(
            "dra_extender_controller_up",
            "0 if the controller was away at its latest question, else 1.",
            ("controller",),
            registry=registry,
        )

    def asked(self, controller: str, kind: str, code: str, seconds: float) -> None:
        """A question was asked; ``code``: ok, refused, pending or error."""
        self._duration.labels(controller, kind, code).observe(seconds)

    def waited(self, controller: str, seconds: float) -> None:
        """A scheduler has waited for an answer."""
        self._waited.labels(controller).inc(seconds)

    def deferred(self, controller: str) -> None:
        """A scheduler did not wait for an answer any more, or not at all: the budget is spent."""
        self._deferred.labels(controller).inc()

    def watch(self, waiting: Callable[[], Mapping[str, int]], controllers: Mapping[str, "KnownController"]) -> None:
        """Have each scrape read how many pods wait for these controllers, and which of the controllers are away."""
        for name, each in controllers.items():
            self._waiting.labels(name).set_function(lambda name=name: waiting().get(name, 0))  # type: ignore[misc]
            self._up.labels(name).set_function(lambda each=each: not each.problem)  # type: ignore[misc]
            self._waited.labels(name)
            self._deferred.labels(name)


@dataclass(slots=True)
class KnownController:
    """A controller that the settings name, and what is known of it.

    Attributes:
        name: the name in device classes.
        controller: answers the questions.
        labels: the labels of nodes that it is told.
        allocation_seconds: how long an allocation may take.
        clock: measures durations, in seconds.
        now: the time.
        metrics: is told of each question.
        parameters: reads the objects that claims name for it; None: it reads them itself.
        budget: how long schedulers may wait for its answers.
        timeout_seconds: how long a question about nodes may take.
        writes_claims: it writes allocations into claims itself, so it serves all requests of a claim.
        answer_seconds: how long its latest answer about nodes took.
        version: of its latest answer.
        problem: why it is away, and since when; empty if it is not.
    """

    name: str
    controller: Controller
    labels: tuple[str, ...]
    allocation_seconds: float
    clock: Callable[[], float]
    now: Callable[[], datetime]
    metrics: ControllerMetrics
    parameters: ParameterReader | None
    budget: WaitingBudget
    timeout_seconds: float
    writes_claims: bool = False
    answer_seconds: float = 0.0
    version: str = ""
    problem: Printable = NO_TEXT
    since: datetime | None = None
    _again: float = 0.0
    _pause: float = _PAUSE_SECONDS
    _answered: float = -inf

    @property
    def is_paused(self) -> bool:
        """Whether it is away, and is not asked again yet."""
        return bool(self.problem) and self.clock() < self._again

    def at_once(self, seconds: float) -> int:
        """The number of questions that it answers in time one after the other, if each takes so many seconds."""
        return max(1, int(min(MOST_AT_ONCE, self.timeout_seconds / seconds))) if seconds > 0 else MOST_AT_ONCE

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
            if self._answered > began:  # it has answered another question meanwhile: it is slow, and not away
                raise ControllerPendingError(awaited(self.name)) from error
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
            seconds = self.clock() - began
            self.metrics.asked(self.name, question.kind, code, seconds)
            if question.kind == UNSUITABLE_NODES:
                self.answer_seconds = seconds
        self._answers()
        self.version = answer.version
        return answer

    def _answers(self) -> None:
        self.problem, self.since, self._pause = NO_TEXT, None, _PAUSE_SECONDS
        self._answered = self.clock()

    def _fail(self, text: str) -> None:
        if self.since is None:
            self.since = self.now()
        self.problem = printable(f"waiting for controller {self.name} since {timestamp(self.since)}: {text}")
        self._again = self.clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def problem_of(self, claim: NegotiatedClaim) -> Printable:
        """Why it cannot serve a claim as it is written; empty if it can."""
        if not (self.writes_claims and claim.has_rest):
            return NO_TEXT
        others = ", ".join(each.name for each in claim.rest.claim.spec.requests)
        text = f"spec.devices.requests: controller {self.name} serves all requests of a claim or none, and not {others}"
        return printable(f"claim {claim.claim.claim.name}: {text}")


@dataclass(frozen=True, slots=True)
class Reach:
    """The ways to reach controllers.

    Attributes:
        budget: for the memory of answers by HTTP.
        instead: reach some controllers in another way than the settings say; by name.
        simulation: controllers are told to allocate nothing.
    """

    budget: Budget
    instead: Mapping[str, Controller] = field(default_factory=dict)
    simulation: bool = False


def known_controllers(
    settings: Sequence[ControllerSettings],
    reach: Reach,
    clock: Callable[[], float],
    now: Callable[[], datetime],
    metrics: ControllerMetrics,
    contexts: Contexts,
    claims: ClaimWrites,
) -> Mapping[str, KnownController]:
    """The controllers of the settings, by name."""
    return {
        each.name: KnownController(
            each.name,
            reach.instead.get(each.name) or _opened(each, contexts, claims, reach.budget),
            tuple(each.node_labels),
            each.allocation_seconds,
            clock,
            now,
            metrics,
            None if each.transport != "Http" else ParameterReader(claims.api, each.parameters),
            WaitingBudget(each.waiting_share),
            each.timeout_seconds,
            each.transport != "Http",
        )
        for each in settings
    }


def _opened(settings: ControllerSettings, contexts: Contexts, claims: ClaimWrites, budget: Budget) -> Controller:
    if settings.transport != "Http":
        seconds = settings.timeout_seconds, settings.allocation_seconds
        return ContextController(settings.name, *seconds, contexts, claims)
    found: Controller = importlib.import_module("extender.plugins.negotiation.http").HttpController(settings, budget)
    return found
