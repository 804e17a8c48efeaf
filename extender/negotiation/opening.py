"""Reaches the controllers of the settings; imports the client for HTTP only if there are any."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from extender.config.controllers import ControllerSettings
from extender.negotiation.controller import Controller
from extender.negotiation.known import KnownController, Ledger


def known_controllers(
    settings: Sequence[ControllerSettings],
    instead: Mapping[str, Controller],
    clock: Callable[[], float],
    now: Callable[[], datetime],
    ledger: Ledger,
) -> Mapping[str, KnownController]:
    """The controllers of the settings, by name; ``instead`` reaches some of them in another way than by HTTP."""
    return {
        each.name: KnownController(
            each.name,
            instead.get(each.name) or _by_http(each),
            tuple(each.node_labels),
            each.allocation_seconds,
            clock,
            now,
            ledger,
        )
        for each in settings
    }


def _by_http(settings: ControllerSettings) -> Controller:
    found: Controller = importlib.import_module("extender.negotiation.http").HttpController(settings)
    return found
