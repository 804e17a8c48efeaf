"""Reading and writing through an API server: what is sent, and what its answers mean."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import orjson
import pytest

from allocator.tools.jsontext import Verbatim
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, UnreachableError
from extender.kube.connection.transport import (
    JSON_TYPE,
    MERGE_PATCH_TYPE,
    HttpReply,
    HttpRequest,
    Stream,
    TooManyRequestsError,
)
from extender.kube.discovery import Served
from extender.kube.encoding import dumps, loads
from extender.kube.remote import MOST_WRITES, WAITING_SECONDS, RemoteApi, RequestTiming
from extender.kube.resources import CLAIMS, NODES, PODS
from tests.extender.kube.live_scenes import api_over, default, make_claim, make_node, now
from tests.kit import virtualtime
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import in_virtual_time, run

CLAIM = make_claim("c")
CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

LIST = b'"metadata":{"resourceVersion":"7"}'

Call = Callable[[Api], Awaitable[object]]

WRITES: dict[str, tuple[Call, str, str, object]] = {
    "create": (lambda api: api.create(CLAIMS, CLAIM), "POST", CLAIM_PATH, CLAIM),
    "update": (lambda api: api.update(CLAIMS, CLAIM), "PUT", f"{CLAIM_PATH}/c", CLAIM),
    "update status": (lambda api: api.update_status(CLAIMS, CLAIM), "PUT", f"{CLAIM_PATH}/c/status", CLAIM),
    "patch": (lambda api: api.patch(CLAIMS, default("c"), {"a": None}), "PATCH", f"{CLAIM_PATH}/c", {"a": None}),
    "patch status": (
        lambda api: api.patch_status(PODS, default("p"), {"status": {}}),
        "PATCH",
        "/api/v1/namespaces/default/pods/p/status",
        {"status": {}},
    ),
    "delete": (
        lambda api: api.delete(CLAIMS, default("c")),
        "DELETE",
        f"{CLAIM_PATH}/c",
        {"apiVersion": "v1", "kind": "DeleteOptions"},
    ),
    "delete with preconditions": (
        lambda api: api.delete(CLAIMS, default("c"), uid="u", resource_version="7"),
        "DELETE",
        f"{CLAIM_PATH}/c",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u", "resourceVersion": "7"}},
    ),
    "bind": (
        lambda api: api.bind_pod(default("p"), "n", uid="u", resource_version="7"),
        "POST",
        "/api/v1/namespaces/default/pods/p/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": "default", "name": "p", "uid": "u", "resourceVersion": "7"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        },
    ),
}


@pytest.mark.parametrize(("call", "method", "path", "body"), WRITES.values(), ids=list(WRITES))
@in_virtual_time
async def test_each_write_is_one_request(call: Call, method: str, path: str, body: object) -> None:
    fake = FakeApi()
    await call(api_over(fake))
    (request,) = fake.requests
    assert (request.method, request.path) == (method, path)
    assert orjson.loads(request.body or b"") == body
    assert request.media_type == (MERGE_PATCH_TYPE if method == "PATCH" else JSON_TYPE)


ANSWERS: dict[str, tuple[Fault, type[Exception], str]] = {
    "409": (Fault(409, reason="Conflict", message="has been modified"), ApiError, "has been modified"),
    "422": (Fault(422, reason="Invalid", message="spec is immutable"), ApiError, "spec is immutable"),
    "403": (Fault(403, reason="Forbidden", message="may not"), ApiError, "may not"),
    "429": (Fault(429, 5.0, message="busy"), TooManyRequestsError, "busy"),
    "500": (Fault(500, message="etcd"), OutcomeUnknownError, "outcome unknown: HTTP 500: etcd"),
    "504": (Fault(504, message="timeout"), OutcomeUnknownError, "outcome unknown: HTTP 504: timeout"),
    "a redirect": (Fault(307), OutcomeUnknownError, "HTTP 307"),
    "no connection": (Fault(refused=True), UnreachableError, "connection refused"),
    "a cut": (Fault(cut_after=0), OutcomeUnknownError, "outcome unknown: cut"),
    "no answer": (Fault(hangs=True), OutcomeUnknownError, "outcome unknown: no answer within 10 s"),
}


@pytest.mark.parametrize(("fault", "error", "text"), ANSWERS.values(), ids=list(ANSWERS))
@pytest.mark.parametrize("call", [write[0] for write in WRITES.values()], ids=list(WRITES))
@in_virtual_time
async def test_a_write_is_never_sent_again_and_its_failure_says_what_is_known(
    call: Call, fault: Fault, error: type[Exception], text: str
) -> None:
    fake = FakeApi(faults=deque([fault]))
    with pytest.raises(error, match=text):
        await call(api_over(fake))
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        (b'{"kind":"Status","reason":"Conflict","message":"old"}', "Conflict", "old"),
        (b'{"kind":"Status"}', "", "HTTP 409"),
        (b"<html>proxy</html>", "", "<html>proxy</html>"),
        (b'"text"', "", '"text"'),
        (b"", "", "HTTP 409"),
    ],
)
def test_a_refusal_has_reason_and_message_of_its_status_or_else_its_text(
    body: bytes, reason: str, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        run(answered(HttpReply(409, body)).update(CLAIMS, CLAIM))
    assert (caught.value.status, caught.value.reason, caught.value.message) == (409, reason, message)
    assert caught.value.is_conflict is (reason == "Conflict")


@pytest.mark.parametrize("body", [b"", b"not json", b"[]"])
def test_a_success_that_is_no_object_leaves_the_outcome_unknown(body: bytes) -> None:
    with pytest.raises(OutcomeUnknownError, match="the answer is not"):
        run(answered(HttpReply(200, body)).update(CLAIMS, CLAIM))


def answered(reply: HttpReply) -> RemoteApi:
    """An API whose server always says the same."""

    class Same(FakeApi):
        async def call(self, _: object) -> HttpReply:
            return reply

    return api_over(Same())


# --- reads --------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_an_object_is_read_as_it_is_now() -> None:
    fake = FakeApi()
    fake.put(NODES, make_node("n"))
    found = await api_over(fake).get(NODES, ObjectKey("", "n"))
    version = found["metadata"]["resourceVersion"]
    assert version == "101"
    assert fake.requests[0].query == {}


def test_an_object_that_is_not_there_is_missing() -> None:
    with pytest.raises(ApiError) as caught:
        run(api_over(FakeApi()).get(NODES, ObjectKey("", "n")))
    assert caught.value.is_missing


@in_virtual_time
async def test_a_list_has_all_objects_with_kind_and_version_at_the_revision_of_its_first_page() -> None:
    fake = FakeApi()
    for name in "abcde":
        fake.put(CLAIMS, make_claim(name))

    def fault_for(request: HttpRequest) -> Fault:
        if "continue" in request.query:
            fake.delete(CLAIMS, default("e"))
        return Fault()

    fake.fault_for = fault_for
    listing = await api_over(fake, page_size=2).list(CLAIMS)
    assert {(obj["apiVersion"], obj["kind"]) for obj in listing.items} == {("resource.k8s.io/v1", "ResourceClaim")}
    assert [obj["metadata"]["name"] for obj in listing.items] == list("abcde")
    assert (listing.revision, len(fake.requests)) == (105, 3)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"items":[]}',
        b'{"metadata":{"resourceVersion":"x"},"items":[]}',
        b'{%b,"items":{}}' % LIST,
        b'{%b,"items":["a"]}' % LIST,
        b'{%b,"items":[{"a":1}' % LIST,
        b'{%b,"items":[%b]}' % (LIST, b"[" * 2000 + b"]" * 2000),
        b'{%b,"items":[%b]}' % (LIST, b"[" * 2000),
    ],
)
def test_a_list_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(OutcomeUnknownError, match="not a list of objects"):
        run(answered(HttpReply(200, body)).list(CLAIMS))


@pytest.mark.parametrize(
    ("odd", "read"),
    [
        (b'"\xff"', "\ufffd"),
        (rb'"\ud800"', "\ufffd"),
        (b"1e999", Verbatim("1e999")),
        (b"[" * 4900 + b"]" * 4900, loads(b"[" * 4900 + b"]" * 4900)),
    ],
    ids=["no UTF-8", "half a surrogate pair", "more than a float", "4,900 levels"],
)
def test_an_odd_item_is_read_like_all_others_of_its_page(odd: bytes, read: object) -> None:
    body = b'{%b,"items":[{"a":1},{"a":%b},{"a":2}]}' % (LIST, odd)
    one, other, two = (item["a"] for item in run(answered(HttpReply(200, body)).list(CLAIMS)).items)
    assert (one, two) == (1, 2)
    assert dumps(other) == dumps(read)


def test_a_list_of_nothing_may_have_no_items() -> None:
    listing = run(answered(HttpReply(200, b'{%b,"items":null}' % LIST)).list(CLAIMS))
    assert (listing.items, listing.revision) == ((), 7)


@pytest.mark.parametrize(
    "fault", [Fault(429), Fault(500), Fault(503), Fault(refused=True), Fault(cut_after=0), Fault(hangs=True)]
)
@in_virtual_time
async def test_reads_are_tried_again(fault: Fault) -> None:
    fake = FakeApi(faults=deque([fault] * 3))
    fake.put(NODES, make_node("n"))
    assert str((await api_over(fake).get(NODES, ObjectKey("", "n")))["metadata"]["name"]) == "n"


@pytest.mark.parametrize(
    ("status", "error", "tries"), [(500, OutcomeUnknownError, 4), (403, ApiError, 1)], ids=["a fault", "a refusal"]
)
@in_virtual_time
async def test_a_read_that_fails_is_tried_again_a_few_times_and_not_if_it_is_refused(
    status: int, error: type[Exception], tries: int
) -> None:
    fake = FakeApi(fault_for=lambda _: Fault(status))
    with pytest.raises(error):
        await api_over(fake).get(NODES, ObjectKey("", "n"))
    assert len(fake.requests) == tries


@pytest.mark.parametrize(("retry_after", "seconds"), [(0.0, 0.1), (2.0, 2.0), (600.0, 5.0)])
@in_virtual_time
async def test_a_read_waits_as_long_as_the_server_says_within_reason(retry_after: float, seconds: float) -> None:
    fake = FakeApi(faults=deque([Fault(429, retry_after)]))
    fake.put(NODES, make_node("n"))
    start = now()
    await api_over(fake).get(NODES, ObjectKey("", "n"))
    assert (now() - start) == pytest.approx(seconds)


@in_virtual_time
async def test_a_callers_deadline_ends_a_call() -> None:
    start = now()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await api_over(FakeApi(fault_for=lambda _: Fault(hangs=True))).update(CLAIMS, CLAIM)
    assert (now() - start) == pytest.approx(1)


# Writes that are slow in admission leave connections to the writes of other namespaces.


class Slow:
    """A transport to an API server whose webhooks take a second for each write to one namespace."""

    def __init__(self) -> None:
        self.open = self.most = 0

    async def call(self, request: HttpRequest) -> HttpReply:
        if "/namespaces/slow/" in request.path:
            self.open += 1
            self.most = max(self.most, self.open)
            await virtualtime.elapse(1)
            self.open -= 1
        return HttpReply(200, b"{}", 0.0)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError(request.path)


class Stuck(Slow):
    """A transport on which the first writes to one namespace never get their answer."""

    async def call(self, _: HttpRequest) -> HttpReply:
        self.open += 1
        if self.open <= MOST_WRITES:
            await asyncio.get_running_loop().create_future()
        return HttpReply(200, b"{}", 0.0)


async def write(api: RemoteApi, namespace: str, name: str) -> None:
    await api.patch_status(PODS, ObjectKey(namespace, name), {"status": {}})


@in_virtual_time
async def test_slow_writes_of_a_namespace_wait_for_each_other_and_others_for_none_of_them() -> None:
    slow = Slow()
    api = RemoteApi(slow, Served({"Pod": "v1"}), random=lambda: 0.5)
    loop = asyncio.get_running_loop()
    writes = [loop.create_task(write(api, "slow", f"p{number}")) for number in range(3 * MOST_WRITES)]
    await virtualtime.elapse(0.1)
    began = loop.time()
    await write(api, "quick", "q")
    assert loop.time() == began
    await asyncio.gather(*writes)
    assert slow.most == MOST_WRITES
    assert loop.time() < 3.2


@in_virtual_time
async def test_a_write_that_gets_no_turn_in_time_is_not_sent_and_says_so() -> None:
    stuck, timing = Stuck(), RequestTiming(call_seconds=1000.0)
    api = RemoteApi(stuck, Served({"Pod": "v1"}), random=lambda: 0.5, timing=timing)
    loop = asyncio.get_running_loop()
    first = [loop.create_task(write(api, "slow", f"p{number}")) for number in range(MOST_WRITES)]
    await virtualtime.elapse(1)
    began = loop.time()
    reason = "PATCH .*/pods/p/status: not sent within 30 s: other writes of namespace slow are slow"
    with pytest.raises(UnreachableError, match=reason):
        await write(api, "slow", "p")
    assert (loop.time() - began, stuck.open) == (WAITING_SECONDS, MOST_WRITES)
    first[0].cancel()
    await virtualtime.elapse(1)
    await write(api, "slow", "p")
    for each in first:
        each.cancel()
    await asyncio.gather(*first, return_exceptions=True)
