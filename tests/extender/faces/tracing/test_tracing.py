"""Traces: a span per verb, solve and request; where they go is in test_tracing_configured.py."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import structlog
from httpx import AsyncClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.requests import Request

from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.faces.http.app import create_app
from extender.faces.spans import Spans
from extender.kube.api import ApiError, OutcomeUnknownError
from extender.kube.connection.transport import HttpRequest as Asking
from extender.kube.remote import RemoteApi
from extender.kube.resources import CLAIMS
from extender.planning.templates import read_catalog
from extender.tools.offload import in_thread
from tests.extender.kube.live_scenes import SERVED, default, half, make_claim
from tests.kit.clusters import GPU, Cluster, asking, binding, claim, client_of, local_slice, node, pod, solver
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import in_virtual_time, run

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
OBJECTS = (
    GPU,
    *(each for name in ("a", "b") for each in (node(name), local_slice(name))),
    claim("c"),
    claim("taken", allocated=["b/gpu-0"], at="b", users=["somebody"]),
    pod("p", "c"),
    pod("plain"),
)
P = {"k8s.namespace.name": "ns", "k8s.pod.name": "p", "k8s.pod.uid": "uid-p"}
PLAIN = {"k8s.namespace.name": "ns", "k8s.pod.name": "plain", "k8s.pod.uid": "uid-plain"}


class Traced:
    """Spans that are kept."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.spans = Spans(provider)

    def ended(self) -> dict[str, ReadableSpan]:
        """By name; no two may have the same."""
        found = self._kept.get_finished_spans()
        assert len({span.name for span in found}) == len(found)
        return {span.name: span for span in found}


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
async def client(traced: Traced, cluster: Cluster) -> AsyncIterator[AsyncClient]:
    settings, tracing = Settings(), traced.spans
    off_loop = tracing.off_loop(in_thread)
    extender = make_extender(cluster.api, cluster.state, solver(), settings, off_loop=off_loop)
    negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
    autoscaler = make_autoscaler(extender.service, negotiating, solver(), settings, read_catalog(settings), off_loop)
    async with client_of(create_app(extender, autoscaler, settings, tracing=tracing)) as found:
        yield found


async def post(client: AsyncClient, path: str, body: object, **headers: str) -> Any:
    response = await client.post(path, content=orjson.dumps(body), headers=headers)
    assert response.status_code == 200
    return response.json()


def told(span: ReadableSpan, prefix: str = "") -> dict[str, object]:
    """Attributes; those of a prefix without it."""
    found = span.attributes or {}
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


# --- verbs --------------------------------------------------------------------------------------------------


async def test_filter_has_pod_decision_nodes_and_what_was_solved(client: AsyncClient, traced: Traced) -> None:
    await post(client, "/filter", asking(pod("p", "c"), "a", "b", "new"))
    (decision,) = (await client.get("/decisions", params={"format": "json"})).json()["items"]
    verb = traced.ended()["filter"]
    assert verb.kind is SpanKind.SERVER
    assert verb.parent is None
    assert told(verb, "k8s.") == {name.removeprefix("k8s."): value for name, value in P.items()}
    found = told(verb, "dra_extender.")
    assert found.pop("steps")
    assert found == {
        "outcome": "ok",
        "decision": decision["id"],
        "nodes.asked": 3,
        "nodes.passed": 1,
        "nodes.failed": 0,
        "nodes.unresolvable": 2,
    }


async def test_what_is_solved_off_the_loop_is_within_its_verb(client: AsyncClient, traced: Traced) -> None:
    await post(client, "/autoscaler/filter", asking(pod("p", "c"), "a"))
    spans = traced.ended()
    assert set(spans) == {"autoscaler/filter", "solve"}
    assert parent(spans["solve"]) == id_of(spans["autoscaler/filter"])
    assert spans["solve"].kind is SpanKind.INTERNAL


VICTIMS = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
WHOLE = {"Pod": pod("p", "c"), "Nodes": {"items": [node("a")]}, "NodeNames": None}
OF_VERBS: list[tuple[str, object, dict[str, object]]] = [
    ("prioritize", asking(pod("plain"), "a", "b"), {**PLAIN, "dra_extender.nodes.asked": 2}),
    ("filter", asking(pod("plain"), "a"), {**PLAIN, "dra_extender.nodes.passed": 1}),
    (
        "preempt",
        {"Pod": pod("plain"), "NodeNameToVictims": None, "NodeNameToMetaVictims": VICTIMS},
        {**PLAIN, "dra_extender.nodes.asked": 1, "dra_extender.nodes.passed": 1},
    ),
    (
        "bind",
        binding("p", "a"),
        {**P, "k8s.node.name": "a", "dra_extender.nodes.asked": 1},
    ),
    ("autoscaler/start", {}, {}),
    ("autoscaler/filter", WHOLE, {**P, "dra_extender.nodes.asked": 1, "dra_extender.nodes.passed": 1}),
    ("autoscaler/prioritize", WHOLE, {**P, "dra_extender.nodes.asked": 1}),
    ("autoscaler/NodeReady", {"NodeName": "a"}, {"k8s.node.name": "a"}),
    (
        "autoscaler/estimate",
        {"Pods": {"items": [pod("plain")]}, "NodeGroups": []},
        {"dra_extender.pods.asked": 1, "dra_extender.pods.failed": 1},
    ),
]


@pytest.mark.parametrize(("verb", "body", "facts"), OF_VERBS, ids=[f"{v} {len(f)}" for v, _, f in OF_VERBS])
async def test_every_verb_has_a_span(
    client: AsyncClient, traced: Traced, verb: str, body: object, facts: dict[str, object]
) -> None:
    await post(client, f"/{verb}", body)
    span = traced.ended()[verb]
    assert span.status.status_code is StatusCode.UNSET
    assert facts.items() | {("dra_extender.outcome", "ok")} <= told(span).items()


async def test_a_pod_is_booked_in_a_span_that_does_not_give_the_session_away(
    client: AsyncClient, traced: Traced
) -> None:
    session = (await post(client, "/autoscaler/start", {}))["Session"]
    await post(client, "/autoscaler/NodeSelected", {"Pod": pod("p", "c"), "Node": node("a")}, session=session)
    span = traced.ended()["autoscaler/NodeSelected"]
    assert {**P, "k8s.node.name": "a"}.items() <= told(span).items()
    assert session not in str(span.to_json())


async def test_the_callers_trace_goes_on(client: AsyncClient, traced: Traced) -> None:
    await post(client, "/filter", asking(pod("plain"), "a"), **TRACEPARENT)
    span = traced.ended()["filter"]
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}", f"{parent(span):016x}") == (TRACE, CALLER)


@pytest.mark.parametrize("header", ["", "junk", f"00-{'0' * 32}-{CALLER}-01", f"ff-{TRACE}-{CALLER}-01"])
async def test_a_header_that_is_none_begins_a_trace(client: AsyncClient, traced: Traced, header: str) -> None:
    await post(client, "/filter", asking(pod("plain"), "a"), traceparent=header)
    assert traced.ended()["filter"].parent is None


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"PodName": "p"}, "WireError", "PodNamespace: missing"),
        (
            binding("p", "b"),
            "RefusedError",
            "no free device for request gpu",
        ),
    ],
)
async def test_a_span_has_the_error_of_the_answer(
    client: AsyncClient, traced: Traced, body: object, kind: str, text: str
) -> None:
    reply = await post(client, "/bind", body)
    span = traced.ended()["bind"]
    assert (told(span)["error.type"], told(span)["dra_extender.outcome"]) == (kind, "error")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == reply["Error"]
    assert text in reply["Error"]


async def test_a_call_that_is_given_up_has_an_error_in_its_span(traced: Traced) -> None:
    async def never(_: object, __: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    call = traced.spans.call("bind", never)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await call(Request({"type": "http", "headers": []}), b"")
    assert traced.ended()["bind"].status.description == "not done in time"


async def test_lines_of_the_log_have_the_trace(client: AsyncClient, traced: Traced) -> None:
    with structlog.testing.capture_logs([*traced.spans.processors]) as lines:
        await post(client, "/filter", asking(pod("p", "c"), "b"), **TRACEPARENT)
        structlog.get_logger().info("elsewhere")
    decided, elsewhere = lines
    assert (decided["event"], decided["trace_id"]) == ("decided", TRACE)
    assert decided["span_id"] == f"{id_of(traced.ended()['filter']):016x}"
    assert "trace_id" not in elsewhere


def test_a_receiver_that_does_not_answer_keeps_nobody_from_ending() -> None:
    answered = threading.Event()

    class Slow(SimpleSpanProcessor):
        def shutdown(self) -> None:
            answered.wait()

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Slow(InMemorySpanExporter()))
    Spans(provider, closing=0).close()
    assert not answered.is_set()
    answered.set()


# --- requests to the API server -----------------------------------------------------------------------------


def traced_api(fake: FakeApi, traced: Traced) -> RemoteApi:
    return RemoteApi(traced.spans.transport(fake), SERVED, random=half)


@in_virtual_time
async def test_requests_are_clients_of_the_verb_and_carry_its_trace_on(traced: Traced) -> None:
    fake = FakeApi()
    fake.put(CLAIMS, make_claim("a"))
    api = traced_api(fake, traced)

    async def verb(_: Request, __: bytes) -> bytes:
        await api.get(CLAIMS, default("a"))
        return b""

    await traced.spans.call("bind", verb)(Request({"type": "http", "headers": []}), b"")
    bind, get = traced.ended()["bind"], traced.ended()["get resourceclaims"]
    assert (get.kind, parent(get)) == (SpanKind.CLIENT, id_of(bind))
    assert told(get) == {
        "http.request.method": "GET",
        "url.path": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a",
        "http.response.status_code": 200,
    }
    (request,) = fake.requests
    assert get.context is not None
    version, trace, span, _ = request.headers["traceparent"].split("-")
    assert (version, trace, span) == ("00", f"{get.context.trace_id:032x}", f"{get.context.span_id:016x}")


@pytest.mark.parametrize(
    ("fault", "error", "facts"),
    [
        (Fault(409), ApiError, {"http.response.status_code": 409, "error.type": "409"}),
        (Fault(hangs=True), OutcomeUnknownError, {"error.type": "CancelledError"}),
    ],
)
def test_a_request_that_fails_says_so(
    traced: Traced, fault: Fault, error: type[Exception], facts: dict[str, object]
) -> None:
    fake = FakeApi()
    fake.faults.append(fault)
    with pytest.raises(error):
        run(traced_api(fake, traced).delete(CLAIMS, default("a")))
    span = traced.ended()["delete resourceclaims"]
    assert span.status.status_code is StatusCode.ERROR
    assert facts.items() <= told(span).items()


@in_virtual_time
async def test_the_span_of_a_watch_ends_with_its_head(traced: Traced) -> None:
    transport = traced.spans.transport(FakeApi())
    watch = Asking("GET", "/api/v1/nodes", {"watch": "true", "resourceVersion": "100", "timeoutSeconds": "1"})
    async with transport.stream(watch) as stream:
        assert stream.status == 200
        assert told(traced.ended()["watch nodes"])["http.response.status_code"] == 200
