"""Tracing: an interface for spans around verbs, solves and requests, which is opened if a receiver is configured.

Without traces nothing is wrapped: what is passed in is returned. `extender.faces.spans` makes spans; only then
are the packages of the extra ``opentelemetry`` imported.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from starlette.requests import Request

from extender.config.settings import TracingSettings
from extender.framework.verb import Facts
from extender.kube.connection.transport import Transport
from extender.tools.offload import Offload
from extender.tools.user_error import UserError, installing

_T = TypeVar("_T")

Call = Callable[[Request, bytes], Awaitable[bytes]]
"""A verb on HTTP: a request and its body in, the reply's body out."""


class Tracing(Protocol):
    """Wraps what is to be traced."""

    @property
    def processors(self) -> Sequence[structlog.typing.Processor]:
        """Processors that add the trace to the lines of the log."""
        ...

    def off_loop(self, off_loop: Offload) -> Offload:
        """Wrap work off the event loop."""
        ...

    def call(self, name: str, call: Call) -> Call:
        """Wrap a verb on HTTP; ``name`` as in metrics."""
        ...

    def tell(self, facts: Callable[[_T], Facts], value: _T, /) -> None:
        """Put facts of a request or of an answer on the span of the call."""
        ...

    def transport(self, transport: Transport) -> Transport:
        """Wrap requests to the API server."""
        ...

    def close(self) -> None:
        """Send the last spans, if there is time."""
        ...


class _Untraced:
    """Wraps nothing."""

    processors: Sequence[structlog.typing.Processor] = ()

    def off_loop(self, off_loop: Offload) -> Offload:
        return off_loop

    def call(self, _: str, call: Call) -> Call:
        return call

    def tell(self, _facts: Callable[[_T], Facts], _value: _T) -> None:
        return

    def transport(self, transport: Transport) -> Transport:
        return transport

    def close(self) -> None:
        return


UNTRACED: Final[Tracing] = _Untraced()


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"


class TracingError(UserError):
    """Traces are configured, and we can't make them."""


def open_tracing(settings: TracingSettings, environment: Mapping[str, str]) -> Tracing:
    """Traces, if the settings or OpenTelemetry's variables configure a receiver; else `UNTRACED`.

    Raises:
        TracingError: the extra is not installed, or a protocol is configured that we do not speak.
    """
    if not _is_wanted(settings, environment):
        return UNTRACED
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        raise TracingError(f"traces are sent by {_SPOKEN} only, not by {protocol}: its port is 4318 as a rule")
    try:
        spans = importlib.import_module("extender.faces.spans")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise TracingError(
            "traces are configured (tracing.endpoint or OTEL_EXPORTER_OTLP_ENDPOINT), but OpenTelemetry is not "
            f"installed: {installing('opentelemetry')}, or set OTEL_SDK_DISABLED=true"
        ) from error
    tracing: Tracing = spans.exported(settings)
    return tracing


def _is_wanted(settings: TracingSettings, environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get(_EXPORTER, "").strip() or "otlp"
    if exporter not in {"otlp", "none"}:
        raise TracingError(f"{_EXPORTER}: traces are sent by otlp only, not by {exporter}")
    return exporter == "otlp" and bool(settings.endpoint or any(environment.get(name) for name in _ENDPOINTS))
