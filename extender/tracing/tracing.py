"""Tracing: what is put around verbs, solves and requests where somebody wants traces.

Where nobody does, nothing is put around anything: what is handed in comes back as it is. What makes spans is in
`extender.tracing.spans`, which is imported only if traces are configured, for it needs what the extra installs.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from starlette.requests import Request

from extender.config.settings import TracingSettings
from extender.kube.transport import Transport
from extender.offload import Offload
from extender.verbs.verb import Facts

_T = TypeVar("_T")

Call = Callable[[Request, bytes], Awaitable[bytes]]
"""A verb on HTTP: a request and its body in, the reply's body out."""

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"


class TracingError(Exception):
    """Traces are wanted and can't be had."""


class Tracing(Protocol):
    """What is put around what."""

    @property
    def processors(self) -> Sequence[structlog.typing.Processor]:
        """What gives the lines of the log the trace that they belong to."""
        ...

    def off_loop(self, off_loop: Offload) -> Offload:
        """Around work off the event loop."""
        ...

    def call(self, name: str, call: Call) -> Call:
        """Around a verb on HTTP; ``name`` as in metrics."""
        ...

    def tell(self, facts: Callable[[_T], Facts], value: _T, /) -> None:
        """Tell of a request or of an answer, on the span of the call."""
        ...

    def transport(self, transport: Transport) -> Transport:
        """Around requests to the API server."""
        ...

    def close(self) -> None:
        """Send what has not been sent yet, as far as there is time."""
        ...


class _Untraced:
    """Nothing around anything."""

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


def open_tracing(settings: TracingSettings, environment: Mapping[str, str]) -> Tracing:
    """Traces where a receiver is configured, by the settings or by OpenTelemetry's own variables; else none.

    Raises:
        TracingError: the extra is not installed, or another protocol is configured than we speak.
    """
    if not _is_wanted(settings, environment):
        return UNTRACED
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        raise TracingError(f"traces are sent by {_SPOKEN} only, not by {protocol}: its port is 4318 as a rule")
    try:
        spans = importlib.import_module("extender.tracing.spans")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise TracingError(
            "traces are configured (tracing.endpoint or OTEL_EXPORTER_OTLP_ENDPOINT), but OpenTelemetry is not "
            "installed: pip install 'dra-extender[opentelemetry]', or set OTEL_SDK_DISABLED=true"
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
