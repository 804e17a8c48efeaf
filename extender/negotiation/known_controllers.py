"""Reaches the controllers of the settings; imports the client for HTTP only if there are any."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from extender.config.controllers import ControllerSettings
from extender.negotiation.by_scheduling_context import ContextController
from extender.negotiation.controller import Controller
from extender.negotiation.known_controller import KnownController, QuestionMetrics
from extender.negotiation.parameters import ParameterReader
from extender.negotiation.scheduling_contexts import Contexts
from extender.negotiation.waiting_budget import WaitingBudget
from extender.writes.claims.claim_writes import ClaimWrites


def known_controllers(
    settings: Sequence[ControllerSettings],
    instead: Mapping[str, Controller],
    clock: Callable[[], float],
    now: Callable[[], datetime],
    metrics: QuestionMetrics,
    contexts: Contexts,
    claims: ClaimWrites,
) -> Mapping[str, KnownController]:
    """The controllers of the settings, by name; ``instead`` reaches some of them in another way."""
    return {
        each.name: KnownController(
            each.name,
            instead.get(each.name) or _opened(each, contexts, claims),
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


def _opened(settings: ControllerSettings, contexts: Contexts, claims: ClaimWrites) -> Controller:
    if settings.transport != "Http":
        seconds = settings.timeout_seconds, settings.allocation_seconds
        return ContextController(settings.name, *seconds, contexts, claims)
    found: Controller = importlib.import_module("extender.negotiation.http").HttpController(settings)
    return found
