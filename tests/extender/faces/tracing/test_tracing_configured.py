"""Traces are there where a receiver is configured, and sent to it; nowhere else is anything of them."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
import yaml
from httpx import AsyncClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from starlette.requests import Request

from extender.config.settings import TracingSettings
from extender.faces.tracing import UNTRACED, TracingError, open_tracing
from extender.tools.offload import in_thread
from tests.extender.faces.serving.process import serving
from tests.kit.clusters import GPU, asking, claim, local_slice, node, pod
from tests.kit.places import ROOT
from tests.kit.servers.transport import FakeApi

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
OBJECTS = (
    GPU,
    node("a"),
    local_slice("a"),
    claim("c"),
    pod("p", "c"),
)

# --- configured or not --------------------------------------------------------------------------------------

ENDPOINT = TracingSettings(endpoint="http://collector:4318")
ENVIRONMENT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        (TracingSettings(), {}),
        (TracingSettings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_SERVICE_NAME": "x"}),
        (TracingSettings(), {**ENVIRONMENT, "OTEL_SDK_DISABLED": "true"}),
        (ENDPOINT, {"OTEL_SDK_DISABLED": "True"}),
        (ENDPOINT, {"OTEL_TRACES_EXPORTER": "none"}),
    ],
)
def test_there_are_none_unless_they_are_wanted(settings: TracingSettings, environment: dict[str, str]) -> None:
    assert open_tracing(settings, environment) is UNTRACED


async def test_without_them_nothing_is_around_anything() -> None:
    async def verb(_: Request, __: bytes) -> bytes:
        return b""

    fake = FakeApi()
    assert UNTRACED.call("filter", verb) is verb
    assert UNTRACED.transport(fake) is fake
    assert UNTRACED.off_loop(in_thread) is in_thread
    assert UNTRACED.processors == ()


async def test_without_them_nothing_of_the_extra_is_loaded() -> None:
    names = "{'opentelemetry.sdk', 'requests', 'extender.faces.spans'}"
    code = f"import sys, extender.faces.commands.serve; print(*({names} & {{*sys.modules}}))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, cwd=ROOT)
    loaded, _ = await process.communicate()
    assert loaded == b"\n"


@pytest.mark.parametrize(("settings", "environment"), [(ENDPOINT, {}), (TracingSettings(), ENVIRONMENT)])
def test_wanted_without_the_extra_it_is_named(
    settings: TracingSettings, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "extender.faces.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(TracingError, match=r"pip install '\.\[opentelemetry\]' in a clone"):
        open_tracing(settings, environment)


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf only, not by grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "http/protobuf only, not by http/json"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: traces are sent by otlp only, not by zipkin"),
    ],
)
def test_what_we_do_not_speak_is_refused(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(TracingError, match=problem):
        open_tracing(ENDPOINT, environment)


# --- sent ---------------------------------------------------------------------------------------------------


class Receiver:
    """Takes traces, on loopback.

    Attributes:
        requests: path and headers of each.
        sent: what came, by the service's name.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent: list[tuple[str, SentSpan]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.take(self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.requests.append((path, headers))
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = [a.value.string_value for a in each.resource.attributes if a.key == "service.name"]
            self.sent += [(names[0], span) for scope in each.scope_spans for span in scope.spans]

    @contextmanager
    def receiving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    with found.receiving():
        yield found


async def _verb(_: Request, __: bytes) -> bytes:
    return b""


async def call_once(settings: TracingSettings, environment: dict[str, str], **headers: str) -> None:
    """A verb, with traces from there to the end."""
    tracing = open_tracing(settings, environment)
    call = tracing.call("filter", _verb)
    await call(Request({"type": "http", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}), b"")
    await asyncio.to_thread(tracing.close)


@pytest.mark.parametrize("slash", ["", "/"])
async def test_they_are_sent_where_the_settings_say(receiver: Receiver, slash: str) -> None:
    await call_once(TracingSettings(endpoint=receiver.url + slash), {})
    assert [path for path, _ in receiver.requests] == ["/v1/traces"]
    assert [(name, span.name) for name, span in receiver.sent] == [("dra-extender", "filter")]


async def test_or_opentelemetrys_own_variables(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "tenant=t",
        "OTEL_SERVICE_NAME": "mine",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    await call_once(TracingSettings(), environment)
    ((path, headers),) = receiver.requests
    assert (path, {name.lower(): value for name, value in headers.items()}["tenant"]) == ("/v1/traces", "t")
    assert [name for name, _ in receiver.sent] == ["mine"]


async def test_the_share_that_is_kept_is_of_those_that_begin_here(receiver: Receiver) -> None:
    settings = TracingSettings.model_validate({"endpoint": receiver.url, "sampleRatio": 0})
    await call_once(settings, {})
    assert receiver.sent == []
    await call_once(settings, {}, **TRACEPARENT)
    assert [span.trace_id.hex() for _, span in receiver.sent] == [TRACE]


async def test_the_service_sends_what_is_left_when_it_stops(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = tmp_path / "cluster.yaml"
    manifests.write_text(yaml.safe_dump_all(OBJECTS))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    async with serving("--manifests", str(manifests)) as (process, url), AsyncClient(base_url=url) as client:
        asked = asking(pod("p", "c"), "a")
        await client.post("/filter", content=orjson.dumps(asked), headers=TRACEPARENT)
        process.terminate()
        async with asyncio.timeout(30):
            await process.communicate()
        assert process.returncode == 0
    assert [(span.name, span.trace_id.hex()) for _, span in receiver.sent] == [("solve", TRACE), ("filter", TRACE)]
