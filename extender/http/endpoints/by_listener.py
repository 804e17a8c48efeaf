"""Which listener serves which endpoints: one table.

A new endpoint is a module here with a function that adds it to an application, and a row of the table.

Listeners are the ports of the service, by who may reach them.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from extender.autoscaler.autoscaler import Autoscaler
from extender.autoscaler.session_views import SessionViews
from extender.config.settings import Settings
from extender.http.endpoints.autoscaler import add_autoscaler_routes, add_autoscaler_sessions
from extender.http.endpoints.console import add_console
from extender.http.endpoints.explain import add_explain
from extender.http.endpoints.operations import add_health, add_index
from extender.http.endpoints.scheduler_verbs import add_scheduler_verbs
from extender.http.endpoints.tables import add_tables
from extender.http.endpoints.what_if import add_what_if
from extender.http.verb_endpoints import Application, Endpoints
from extender.service import Service
from extender.whatif.asking import WhatIf


class Listener(Enum):
    """A port of the service."""

    SERVER = auto()
    """For kube-scheduler and people on the same host."""
    OPERATIONS = auto()
    """For probes and Prometheus: open to the network, so nothing can be changed there, and nothing is secret."""
    API = auto()
    """For callers off the node. Each has to prove who it is, and needs a right for what it asks."""


@dataclass(frozen=True, slots=True)
class EndpointParts:
    """What endpoints are made of."""

    service: Service
    autoscaler: Autoscaler
    settings: Settings
    endpoints: Endpoints


def _scheduler_verbs(app: Application, parts: EndpointParts) -> None:
    add_scheduler_verbs(app, parts.service, parts.autoscaler, parts.endpoints, parts.settings)


def _autoscaler_verbs(app: Application, parts: EndpointParts) -> None:
    deadline = parts.settings.autoscaler.deadline_seconds
    add_autoscaler_routes(app, parts.autoscaler, replace(parts.endpoints, deadline=deadline))


def _explain(app: Application, parts: EndpointParts) -> None:
    add_explain(app, parts.service.explanations, parts.endpoints.bodies)


def _what_if(app: Application, parts: EndpointParts) -> None:
    catalog, preempts = parts.autoscaler.catalog, parts.settings.scheduling.preemption
    add_what_if(app, WhatIf(parts.service, catalog, preempts), parts.endpoints.bodies)


def _tables(app: Application, parts: EndpointParts) -> None:
    add_tables(app, parts.service.overview)


def _console(app: Application, parts: EndpointParts) -> None:
    add_console(app, parts.service, parts.settings.autoscaler.learn_from_label)
    add_autoscaler_sessions(app, SessionViews(parts.autoscaler, parts.service.overview.now, secrets.token_hex(8)))


def _health(app: Application, parts: EndpointParts) -> None:
    add_health(app, parts.service)


def _index(app: Application, parts: EndpointParts) -> None:
    add_index(app, parts.service)


_Add: TypeAlias = Callable[[Application, EndpointParts], None]

_ENDPOINTS: Final[tuple[tuple[_Add, frozenset[Listener]], ...]] = (
    (_scheduler_verbs, frozenset({Listener.SERVER})),
    (_autoscaler_verbs, frozenset({Listener.SERVER, Listener.API})),
    (_explain, frozenset({Listener.SERVER, Listener.API})),
    (_what_if, frozenset({Listener.SERVER, Listener.API})),
    (_tables, frozenset({Listener.SERVER, Listener.API})),
    (_console, frozenset({Listener.SERVER, Listener.API})),
    (_health, frozenset({Listener.SERVER, Listener.OPERATIONS})),
    (_index, frozenset({Listener.SERVER, Listener.API})),
)


def add_endpoints(app: Application, listener: Listener, parts: EndpointParts) -> None:
    """All endpoints of a listener."""
    for add, listeners in _ENDPOINTS:
        if listener in listeners:
            add(app, parts)
