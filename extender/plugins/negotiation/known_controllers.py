"""Reaches the controllers of the settings; imports the client for HTTP only if there are any."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from extender.cluster.writes.claims import ClaimWrites
from extender.config.settings import ControllerSettings
from extender.plugins.negotiation.by_scheduling_context import ContextController
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.metrics import ControllerMetrics
from extender.plugins.negotiation.parameters import ParameterReader
from extender.plugins.negotiation.protocol import Controller
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.tools.fairness.waiting_budget import WaitingBudget
from extender.tools.intake import Budget


@dataclass(frozen=True, slots=True)
class Reach:
    """How controllers are reached.

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
