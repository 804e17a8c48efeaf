"""Opens tracing if a receiver is configured. Only then are the packages of the extra ``opentelemetry`` imported."""

import importlib
from collections.abc import Mapping
from typing import Final

from extender.config.settings import TracingSettings
from extender.faces.tracing.tracing import UNTRACED, Tracing
from extender.tools.user_error import UserError

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
        spans = importlib.import_module("extender.faces.tracing.spans")
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
