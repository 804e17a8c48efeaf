"""Spans of OpenTelemetry: one per verb, solve and request to the API server. Needs the extra ``opentelemetry``.

If the caller sends ``traceparent`` (W3C), the verb's span is a child of the caller's span. Requests to the API server
carry ``traceparent`` on. The process has no global provider: we do not send the spans of other libraries.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, TypeVar

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import Request as Incoming

from extender.config.settings import TracingSettings
from extender.faces.tracing import Call
from extender.framework.verb import Facts
from extender.kube.connection.transport import HttpReply, HttpRequest, Stream, Transport, asked
from extender.tools.offload import Of, Offload, namespace_of
from extender.tools.version import __version__

_T = TypeVar("_T")

_SERVICE: Final = "dra-extender"
_OWN: Final = "dra_extender."
_W3C: Final = TraceContextTextMapPropagator()
_OUT_OF_TIME: Final = "not done in time"


def exported(settings: TracingSettings) -> "Spans":
    """Spans that are sent by OTLP over HTTP, in the background.

    OpenTelemetry's environment variables give what the settings leave open: endpoint, headers, sampling, service name.
    """
    endpoint = f"{settings.endpoint.rstrip('/')}/v1/traces" if settings.endpoint else None
    ratio = settings.sample_ratio
    ours = Resource.create({"service.name": _SERVICE, "service.version": __version__})
    provider = TracerProvider(
        resource=ours.merge(OTELResourceDetector().detect()),
        sampler=None if ratio is None else ParentBased(TraceIdRatioBased(ratio)),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Spans(provider)


class Spans:
    """Makes spans; implements `extender.faces.tracing.Tracing`.

    Args:
        provider: makes spans and sends them.
        closing: seconds to wait at the end until the last spans are sent.
    """

    def __init__(self, provider: TracerProvider, closing: float = 3.0) -> None:
        self._provider = provider
        self._closing = closing
        self._tracer = provider.get_tracer(_SERVICE, __version__)

    @property
    def processors(self) -> Sequence[structlog.typing.Processor]:
        """One processor, which adds ``trace_id`` and ``span_id``."""
        return (_with_trace,)

    def off_loop(self, off_loop: Offload) -> Offload:
        """A span around the work of a verb, without its wait for a thread. Other work, such as tables, has no span."""

        async def solving(work: Callable[[], _T]) -> _T:
            if not trace.get_current_span().is_recording():
                return await off_loop(work)

            def solve() -> _T:
                with _span(self._tracer, "solve"):
                    return work()

            return await off_loop(Of(namespace_of(work), solve))

        return solving

    def call(self, name: str, call: Call) -> Call:
        """A server span, a child of the caller's span."""

        async def traced(request: Incoming, body: bytes) -> bytes:
            with _span(self._tracer, name, SpanKind.SERVER, _W3C.extract(request.headers)) as span:
                span.set_attribute(f"{_OWN}outcome", "error")
                reply = await call(request, body)
                span.set_attribute(f"{_OWN}outcome", "ok")
            return reply

        return traced

    def tell(self, facts: Callable[[_T], Facts], value: _T) -> None:
        """Set attributes of the current span; the id of the current decision is one, as in the log."""
        decision = structlog.contextvars.get_contextvars().get("decision")
        told = {f"{_OWN}decision": decision} if decision else {}
        trace.get_current_span().set_attributes({**facts(value), **told})

    def transport(self, transport: Transport) -> Transport:
        """A client span per request, which the request carries on."""
        return _Transport(transport, self._tracer)

    def close(self) -> None:
        """Send the last spans. If the receiver does not answer in time, they are lost."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(self._closing)


@dataclass(frozen=True, slots=True)
class _Transport:
    """Requests, each in a span; implements `extender.kube.connection.transport.Transport`."""

    transport: Transport
    tracer: Tracer

    async def call(self, request: HttpRequest) -> HttpReply:
        with self._span(request) as (span, carried):
            reply = await self.transport.call(carried)
            _answered(span, reply.status)
        return reply

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Stream]:
        async with AsyncExitStack() as stack:
            # The span ends with the head of the answer: the watch itself goes on for most of a minute.
            with self._span(request) as (span, carried):
                stream = await stack.enter_async_context(self.transport.stream(carried))
                _answered(span, stream.status)
            yield stream

    @contextmanager
    def _span(self, request: HttpRequest) -> Iterator[tuple[Span, HttpRequest]]:
        with _span(self.tracer, " ".join(filter(None, asked(request))), SpanKind.CLIENT) as span:
            span.set_attributes({"http.request.method": request.method, "url.path": request.path})
            headers: dict[str, str] = {}
            _W3C.inject(headers)
            yield span, replace(request, headers=headers)


@contextmanager
def _span(
    tracer: Tracer, name: str, kind: SpanKind = SpanKind.INTERNAL, parent: Context | None = None
) -> Iterator[Span]:
    """A span around the body. It notes an error of the body, which is raised again."""
    with tracer.start_as_current_span(
        name, parent, kind, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            late = isinstance(error, (TimeoutError, asyncio.CancelledError))
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, _OUT_OF_TIME if late else str(error)))
            raise


def _answered(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.BAD_REQUEST:
        span.set_attribute("error.type", str(status))
        span.set_status(Status(StatusCode.ERROR))


def _with_trace(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event
