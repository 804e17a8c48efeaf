"""The service on HTTP: the table of which listener serves which endpoints, and the application of a listener.

Listeners are the ports of the service, by who may reach them. A new endpoint is a module of
`extender.faces.http.endpoints` with a function that adds it to an application, and a row of the table.

Verbs answer as kube-scheduler needs it (`extender.faces.http.verb_endpoints`). Everything else answers an error with a
status and ``{"error": ...}`` (`extender.faces.http.replies`).
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from allocator.tools import did_you_mean, nearest
from extender.answers.defragmentation.defragment import AskedMoves
from extender.answers.whatif.answering import WhatIf
from extender.autoscaler.autoscaler import Autoscaler
from extender.config.settings import Settings
from extender.faces.assembly import Extender
from extender.faces.http.bodies import Bodies
from extender.faces.http.callers import Callers
from extender.faces.http.endpoints.autoscaler import SessionViews, add_autoscaler_routes, add_autoscaler_sessions
from extender.faces.http.endpoints.console import add_console
from extender.faces.http.endpoints.defragment import add_defragment
from extender.faces.http.endpoints.explain import add_explain
from extender.faces.http.endpoints.operations import add_health, add_index
from extender.faces.http.endpoints.scheduler_verbs import add_scheduler_verbs
from extender.faces.http.endpoints.tables import add_tables
from extender.faces.http.endpoints.usage import add_usage
from extender.faces.http.endpoints.what_if import add_what_if
from extender.faces.http.replies import OF_PAGES, error_reply, reply_to
from extender.faces.http.verb_endpoints import Application, Endpoints
from extender.faces.tracing import UNTRACED, Tracing
from extender.tools.intake import Budget, Source
from extender.tools.user_error import expected, suggestion
from extender.tools.version import __version__


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
    """The parts that endpoints are made of."""

    extender: Extender
    autoscaler: Autoscaler
    settings: Settings
    endpoints: Endpoints


def _scheduler_verbs(app: Application, parts: EndpointParts) -> None:
    bodies = Bodies(
        parts.settings.server.body_limit_bytes, parts.endpoints.bodies.budget, Source.SCHEDULERS, parts.endpoints.clock
    )
    endpoints = replace(parts.endpoints, bodies=bodies)
    add_scheduler_verbs(app, parts.extender, parts.autoscaler, endpoints, parts.settings)


def _autoscaler_verbs(app: Application, parts: EndpointParts) -> None:
    deadline = parts.settings.autoscaler.deadline_seconds
    add_autoscaler_routes(app, parts.autoscaler, replace(parts.endpoints, deadline=deadline))


def _explain(app: Application, parts: EndpointParts) -> None:
    add_explain(app, parts.extender.explanations, parts.endpoints.bodies)


def _what_if(app: Application, parts: EndpointParts) -> None:
    catalog, preempts = parts.autoscaler.catalog, parts.settings.scheduling.preemption
    add_what_if(app, WhatIf(parts.extender.overview, catalog, preempts), parts.endpoints.bodies)


def _defragment(app: Application, parts: EndpointParts) -> None:
    add_defragment(app, AskedMoves(parts.extender.overview, parts.settings.scheduling.scheduler_names))


def _tables(app: Application, parts: EndpointParts) -> None:
    add_tables(app, parts.extender.overview)


def _usage(app: Application, parts: EndpointParts) -> None:
    add_usage(app, parts.extender.overview, parts.settings.usage.grafana)


def _console(app: Application, parts: EndpointParts) -> None:
    add_console(app, parts.extender, parts.settings.autoscaler.learn_from_label)
    add_autoscaler_sessions(app, SessionViews(parts.autoscaler, parts.extender.overview.now, secrets.token_hex(8)))


def _health(app: Application, parts: EndpointParts) -> None:
    add_health(app, parts.extender)


def _index(app: Application, parts: EndpointParts) -> None:
    add_index(app, parts.extender.service)


_Add: TypeAlias = Callable[[Application, EndpointParts], None]

_ENDPOINTS: Final[tuple[tuple[_Add, frozenset[Listener]], ...]] = (
    (_scheduler_verbs, frozenset({Listener.SERVER})),
    (_autoscaler_verbs, frozenset({Listener.SERVER, Listener.API})),
    (_explain, frozenset({Listener.SERVER, Listener.API})),
    (_what_if, frozenset({Listener.SERVER, Listener.API})),
    (_defragment, frozenset({Listener.SERVER, Listener.API})),
    (_tables, frozenset({Listener.SERVER, Listener.API})),
    (_usage, frozenset({Listener.SERVER, Listener.API})),
    (_console, frozenset({Listener.SERVER, Listener.API})),
    (_health, frozenset({Listener.SERVER, Listener.OPERATIONS})),
    (_index, frozenset({Listener.SERVER, Listener.API})),
)


def add_endpoints(app: Application, listener: Listener, parts: EndpointParts) -> None:
    """All endpoints of a listener."""
    for add, listeners in _ENDPOINTS:
        if listener in listeners:
            add(app, parts)


_REPEATED: Final = "repeated"

_MOST_PROBLEMS: Final = 10
"""Problems in one answer. To find the parameter that was meant takes time for each."""


def create_app(
    extender: Extender,
    autoscaler: Autoscaler,
    settings: Settings,
    listener: Listener = Listener.SERVER,
    *,
    clock: Callable[[], float] = time.perf_counter,
    tracing: Tracing = UNTRACED,
    budget: Budget | None = None,
) -> FastAPI:
    """The ASGI application of a listener. Nothing is started: the caller owns the event loop and the cluster."""
    app = _app(_callers(settings, listener))
    bodies = Bodies(settings.server.body_limit_bytes, budget or Budget(), clock=clock)
    endpoints = Endpoints(extender.service.metrics, tracing, clock, bodies, settings.scheduling.deadline_seconds)
    add_endpoints(app, listener, EndpointParts(extender, autoscaler, settings, endpoints))
    return app


def _callers(settings: Settings, listener: Listener) -> Callers | None:
    """Whose requests are answered; None for all, because Prometheus may use any name of the port for operations."""
    if listener is Listener.OPERATIONS:
        return None
    if listener is Listener.API or settings.server.tls:
        return Callers(None)
    return Callers((settings.server.host, *settings.server.allowed_hosts))


def _app(callers: Callers | None = None) -> Application:
    return Application(
        callers,
        title="dra-extender",
        version=__version__,
        description="A kube-scheduler extender that owns Dynamic Resource Allocation.",
        docs_url=None,  # its page loads scripts from the Internet, which many clusters can't reach
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(_refuse_repeated)],
        exception_handlers={
            HTTPException: _http_error,
            RequestValidationError: _bad_parameters,
            **dict.fromkeys(OF_PAGES, reply_to),
        },
    )


_LONGEST_PATH: Final = 64
"""Characters of an unknown path that are compared with the known paths."""


async def _refuse_repeated(request: Request) -> None:
    """Refuse a parameter that is given twice and has one value: the caller would not know which one counts.

    Raises:
        RequestValidationError: each such parameter.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    repeated = {name: times for name, times in given.items() if times > 1}
    if repeated and (single := repeated.keys() & _parameters(request, is_list=False)):
        raise RequestValidationError(
            [{"type": _REPEATED, "loc": ("query", name), "input": repeated[name]} for name in given if name in single]
        )


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, as JSON."""
    if not isinstance(error, HTTPException):
        raise error
    path, method, headers = request.url.path, request.method, dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        paths = _paths(request)
        meant = did_you_mean(paths.get(nearest(path[:_LONGEST_PATH], paths), ""))
        message = f"no such path: {path}{meant or '; GET / lists what there is'}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": "GET, HEAD" if headers.get("Allow") == "GET" else headers["Allow"]}
        message = f"{path} does not take {method}; use {headers['Allow'].replace(', ', ' or ')}"
    else:
        message = str(error.detail)
    return error_reply(error.status_code, message, headers)


async def _bad_parameters(request: Request, error: Exception) -> Response:
    """Unknown parameters of the query, and parameters with invalid values, each by its name."""
    if not isinstance(error, RequestValidationError):
        raise error
    found = error.errors()
    problems = [_problem(request, item) for item in found[:_MOST_PROBLEMS]]
    more = [f"and {len(found) - len(problems)} more"] if len(found) > len(problems) else []
    return error_reply(HTTPStatus.BAD_REQUEST, "; ".join(problems + more))


def _problem(request: Request, item: ErrorDetails) -> str:
    name = str(item["loc"][-1])
    if item["type"] == "extra_forbidden":
        return f'unknown parameter "{name}"{suggestion(name, _parameters(request))}'
    if item["type"] == _REPEATED:
        return f"{name}: given {item['input']} times; give it once"
    return f"{name}: {expected(item)}"


def _paths(request: Request) -> dict[str, str]:
    """The paths by the part before their first parameter; of equal parts, one that takes the method."""
    routes = [route for route in request.app.routes if isinstance(route, APIRoute)]
    routes.sort(key=lambda route: request.method in (route.methods or ()))
    return {route.path.partition("/{")[0]: route.path for route in routes}


def _parameters(request: Request, *, is_list: bool | None = None) -> set[str]:
    """The documented parameters of a path: all, or those that may (or may not) be given several times."""
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    found = (each for each in operation.get("parameters", ()) if each["in"] == "query")
    return {each["name"] for each in found if is_list is None or _takes_list(each["schema"]) is is_list}


def _takes_list(schema: Mapping[str, Any]) -> bool:
    return any(each.get("type") == "array" for each in (schema, *schema.get("anyOf", ())))
