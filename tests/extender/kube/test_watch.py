"""One connection: lists in pages and in streams, watches, and every way in which they end."""

import asyncio
import time
from collections import deque
from contextlib import aclosing
from functools import partial
from itertools import repeat

import pytest

from extender.kube.api import ApiError, Event, OutcomeUnknownError, UnreachableError
from extender.kube.connection.transport import TooManyRequestsError
from extender.kube.encoding import dumps, loads, loads_aside
from extender.kube.resources import CLAIMS, NODES, PODS, Resource
from extender.kube.watch import BrokenWatchError, ListAgainError, ListedObject, WatchSource
from extender.tools.offload import at_once, in_thread
from tests.extender.kube.live_scenes import default, make_claim, make_node, make_pod, now, source_over
from tests.extender.kube.watch_scenes import Scripted, Trickle, event_line, take, three_claims
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import elapse, in_virtual_time, run

# --- lists --------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_list_comes_in_a_stream_of_which_no_more_is_read() -> None:
    fake = three_claims()
    found = await take(source_over(fake), CLAIMS, None)
    assert found == ["list a,b,c @103"]
    assert [request.query["sendInitialEvents"] for request in fake.requests] == ["true"]


def test_changes_before_the_end_of_the_list_come_after_it_in_their_order() -> None:
    events = [("ADDED", "a", 101), ("ADDED", "b", 102), ("DELETED", "a", 104), ("ADDED", "a", 105), ("ADDED", "c", 106)]
    end = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"107","annotations":{%b:"true"}}}}\n'
    lines = [event_line(*event) for event in events]
    source = source_over(FakeApi())
    source.api.transport = Scripted([*lines, end % b'"k8s.io/initial-events-end"', event_line("ADDED", "unread", 108)])
    assert run(take(source, CLAIMS, None)) == ["list a,b @107", "DELETED a @104", "ADDED a @105", "ADDED c @106"]


def test_a_stream_that_ends_before_its_list_does_is_broken() -> None:
    source = source_over(FakeApi())
    source.api.transport = Scripted([event_line("ADDED", "a", 101)])
    with pytest.raises(BrokenWatchError, match="before its list did"):
        run(take(source, CLAIMS, None))


@in_virtual_time
async def test_no_list_and_no_watch_is_ever_asked_for_at_revision_0() -> None:
    fake = three_claims()
    await take(source_over(fake), CLAIMS, None)
    fake.streams_lists = False
    await take(source_over(fake), CLAIMS, None)
    requests = fake.requests
    assert [request.query.get("resourceVersion") for request in requests] == [None] * len(requests)
    assert requests[0].query["resourceVersionMatch"] == "NotOlderThan"


@pytest.mark.parametrize("status", [400, 422])
@in_virtual_time
async def test_a_server_without_streaming_lists_is_asked_for_pages_and_not_for_streams_again(status: int) -> None:
    fake = three_claims()
    fake.faults = deque([Fault(status, reason="Invalid")])
    source = source_over(fake)
    found = [*await take(source, CLAIMS, None), *await take(source, CLAIMS, None)]
    assert found == ["list a,b,c @103"] * 2
    assert len(fake.watches(CLAIMS)) == 1
    assert [request.query.get("continue") for request in fake.lists(CLAIMS)] == [None, "2@103"] * 2


@in_virtual_time
async def test_a_server_that_falls_silent_in_a_list_is_asked_for_pages_the_next_time() -> None:
    fake = three_claims()
    fake.faults = deque([Fault(silent_after=100)])
    source = source_over(fake)
    with pytest.raises(ListAgainError, match="silent for 65 s"):
        await take(source, CLAIMS, None)
    assert (await take(source, CLAIMS, None), now()) == (["list a,b,c @103"], 65.0)


@in_virtual_time
async def test_a_server_that_never_comes_to_the_end_of_a_list_is_asked_for_pages_the_next_time() -> None:
    source = source_over(FakeApi())
    unending = Trickle(event_line("ADDED", "a", 1), seconds=10)
    unending.over = three_claims()
    source.api.transport = unending
    with pytest.raises(ListAgainError, match="no end in time"):
        await take(source, CLAIMS, None)
    assert (await take(source, CLAIMS, None), now()) == (["list a,b,c @103"], 130.0)


def test_pages_that_expire_are_no_list() -> None:
    async def main() -> None:
        fake = three_claims(streams_lists=False)
        fake.fault_for = lambda request: Fault(410, reason="Expired") if "continue" in request.query else Fault()
        await take(source_over(fake), CLAIMS, None)

    with pytest.raises(ApiError, match="fault"):
        run(main())


def test_items_of_pages_say_what_they_are() -> None:
    async def main() -> list[tuple[str, str]]:
        fake = three_claims(streams_lists=False)
        async with aclosing(source_over(fake).signals(CLAIMS, None)) as signals:
            items = [signal.object async for signal in signals if isinstance(signal, ListedObject)]
            return [(obj["apiVersion"], obj["kind"]) for obj in items if isinstance(obj, dict)]

    assert run(main()) == [("resource.k8s.io/v1", "ResourceClaim")] * 3


# --- watches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1,), (3, 1000, 7), (100_000,)])
@in_virtual_time
async def test_a_watch_tells_each_change_once_however_the_bytes_come(sizes: tuple[int, ...]) -> None:
    fake = three_claims()
    fake.chunk_sizes = sizes
    fake.delete(CLAIMS, default("b"))
    fake.put(CLAIMS, make_claim("a", changed="yes"))
    assert await take(source_over(fake), CLAIMS, 101, 4) == [
        "ADDED b @102",
        "ADDED c @103",
        "DELETED b @104",
        "MODIFIED a @105",
    ]


@in_virtual_time
async def test_several_events_may_come_in_one_chunk_and_empty_lines_count_for_nothing() -> None:
    a, b, c = (event_line("ADDED", name, revision) for revision, name in enumerate("abc", start=1))
    source = source_over(FakeApi())
    source.api.transport = Scripted([a + b"\n" + b + c[:20], c[20:]])
    assert await take(source, NODES, 0) == ["ADDED a @1", "ADDED b @2", "ADDED c @3"]


def test_unknown_fields_of_objects_are_kept() -> None:
    async def main() -> object:
        fake = FakeApi()
        fake.put(NODES, {**make_node("a"), "future": {"field": [1]}})
        async with aclosing(source_over(fake).signals(NODES, 100)) as signals:
            event = await anext(signals)
            assert isinstance(event, Event)
            return event.object["future"]

    assert run(main()) == {"field": [1]}


@in_virtual_time
async def test_a_quiet_watch_brings_a_bookmark_and_ends_when_it_was_asked_to() -> None:
    fake = FakeApi()
    start = now()
    found, seconds = await take(source_over(fake), NODES, 100), now() - start
    assert found == ["bookmark @100"]
    assert seconds == 47


@pytest.mark.parametrize("as_event", [True, False])
def test_a_revision_that_is_too_old_is_expired(*, as_event: bool) -> None:
    async def main() -> None:
        fake = three_claims()
        fake.expired_as_event = as_event
        fake.compact()
        await take(source_over(fake), CLAIMS, 101)

    with pytest.raises(ListAgainError):
        run(main())


FAILURES = {
    "cut between events": (Fault(cut_after=0), BrokenWatchError, "reset"),
    "cut within an event": (Fault(cut_after=40), BrokenWatchError, "reset"),
    "garbage": (Fault(garbage_after=1), ListAgainError, "not an event"),
    "an ERROR event": (Fault(error_after=1), ListAgainError, "ERROR Oops: fault"),
    "an ERROR event that says expired": (Fault(error_after=0, error_code=410), ListAgainError, "Oops: fault"),
    "silence": (Fault(silent_after=0), BrokenWatchError, "silent for 65 s"),
    "silence within an event": (Fault(silent_after=40), BrokenWatchError, "silent for 65 s"),
    "no connection": (Fault(refused=True), UnreachableError, "connection refused"),
    "no answer": (Fault(hangs=True), OutcomeUnknownError, "no answer within 30 s"),
    "500": (Fault(500), OutcomeUnknownError, "HTTP 500: fault"),
    "429": (Fault(429, 7.0), TooManyRequestsError, "fault"),
    "403": (Fault(403, reason="Forbidden", message="no"), ApiError, "no"),
    "a redirect": (Fault(302), OutcomeUnknownError, "HTTP 302"),
    "no content": (Fault(204), OutcomeUnknownError, "HTTP 204 is no watch"),
}


@pytest.mark.parametrize(("fault", "error", "text"), FAILURES.values(), ids=list(FAILURES))
def test_a_watch_that_fails_says_how(fault: Fault, error: type[Exception], text: str) -> None:
    async def main() -> None:
        fake = three_claims()
        fake.faults = deque([fault])
        await take(source_over(fake), CLAIMS, 100)

    with pytest.raises(error, match=text):
        run(main())


def odd_line(name: str, revision: int, deep: bytes) -> bytes:
    """An event of an object with something odd before its metadata."""
    metadata = b'{"name":"%b","resourceVersion":"%d"}' % (name.encode(), revision)
    return b'{"type":"ADDED","object":{"a":%b,"metadata":%b}}\n' % (deep, metadata)


@pytest.mark.parametrize("odd", [b"[" * 4900 + b"]" * 4900, b"1e999", b'"\xff"', rb'"\ud800"', b"9" * 5000])
def test_an_event_with_anything_in_its_object_is_one(odd: bytes) -> None:
    source = source_over(FakeApi())
    source.api.transport = Scripted([odd_line("a", 101, odd), event_line("ADDED", "b", 102)])
    assert run(take(source, CLAIMS, 100)) == ["ADDED a @101", "ADDED b @102"]


@pytest.mark.parametrize(
    "lines",
    [[event_line("ADDED", "a", 99)], [event_line("ADDED", "a", 105), event_line("DELETED", "b", 104)]],
    ids=["than the beginning", "than another event"],
)
def test_an_event_that_is_older_than_what_was_seen_means_listing_again(lines: list[bytes]) -> None:
    source = source_over(FakeApi())
    source.api.transport = Scripted(lines)
    with pytest.raises(ListAgainError, match="though"):
        run(take(source, CLAIMS, 100))


def test_a_line_that_the_server_did_not_end_is_no_event() -> None:
    async def main() -> None:
        source = source_over(FakeApi())
        source.api.transport = Scripted([b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}'])
        await take(source, NODES, 0)

    with pytest.raises(BrokenWatchError, match="cut within an event, after 51 bytes"):
        run(main())


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"type":"ADDED"}',
        b'{"type":1,"object":{}}',
        b'{"type":"ADDED","object":[]}',
        b'{"type":"BOOKMARK","object":{}}',
        b'{"type":"BOOKMARK","object":{"metadata":null}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"annotations":[]}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%b"}}}' % (b"9" * 5000),
        b'{"type":"ERROR","object":{"reason":%b}}' % (b"[" * 4900 + b"]" * 4900),
        b'{"type":"ADDED","object":%b' % (b"[" * 4900),
    ],
    ids=lambda line: line[:70],
)
def test_a_line_that_is_json_but_no_event_is_refused(line: bytes) -> None:
    async def main() -> None:
        source = source_over(FakeApi())
        source.api.transport = Scripted([line + b"\n"])
        await take(source, NODES, 0)

    with pytest.raises(ListAgainError, match=r"not an event|a bookmark without a revision|ERROR"):
        run(main())


@in_virtual_time
async def test_a_slow_server_is_not_a_dead_one() -> None:
    source = source_over(FakeApi())
    trickle = Trickle(event_line("ADDED", "a", 1), seconds=64)
    source.api.transport = trickle
    assert await take(source, NODES, 0, 3) == ["ADDED a @1"] * 3


@in_virtual_time
async def test_watches_are_asked_to_end_at_different_times() -> None:
    fake = FakeApi()
    for jitter in (0.0, 0.5, 0.99):
        source = WatchSource(source_over(fake).api, random=partial(float, jitter), off_loop=at_once)
        await take(source, NODES, 100, 1)
    assert ([request.query["timeoutSeconds"] for request in fake.watches(NODES)]) == ["40", "47", "54"]


@in_virtual_time
async def test_only_so_many_lists_are_read_at_a_time() -> None:
    fake = FakeApi(fault_for=lambda _: Fault(hangs=True))
    source = source_over(fake)
    tasks = [asyncio.create_task(take(source, resource, None)) for resource in (NODES, PODS, CLAIMS)]
    await elapse(1)
    asked = len(fake.requests)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert asked == 2


@in_virtual_time
async def test_a_refusal_of_a_watch_that_does_not_end_is_not_read_to_its_end() -> None:
    source, endless = source_over(FakeApi()), Scripted(repeat(b"x" * 100_000), status=503)
    source.api.transport = endless
    with pytest.raises(OutcomeUnknownError, match="HTTP 503 with more than 1048576 bytes"):
        await take(source, CLAIMS, 100)
    assert endless.sent == 11


# --- long objects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "taken"),
    [(70_000, {CLAIMS: [0, 16], NODES: [8, 24]}), (100, {CLAIMS: [0, 4], NODES: [0, 4]})],
    ids=["long", "short"],
)
@in_virtual_time
async def test_long_objects_of_all_kinds_leave_half_of_the_time_to_other_work(
    length: int, taken: dict[Resource, list[int]]
) -> None:
    """An API server sends as fast as we read. It takes 4 ms to take in each object."""

    async def milliseconds(source: WatchSource, resource: Resource) -> list[int]:
        found = list[int]()
        async with aclosing(source.signals(resource, 100)) as signals:
            async for _ in signals:
                found.append(round(now() * 1000))
                await elapse(0.004)
                if len(found) == 3:
                    break
        return found[:2]

    fake = FakeApi()
    for name in "abc":
        fake.put(CLAIMS, make_claim(name, long="x" * length))
        fake.put(NODES, {**make_node(name), "status": {"images": "x" * length}})
    source = source_over(fake)
    assert await asyncio.gather(*[milliseconds(source, each) for each in taken]) == [*taken.values()]


# --- pods that do not matter --------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False])
@in_virtual_time
async def test_of_pods_without_devices_only_what_counts_is_told(*, streams: bool) -> None:
    fake = FakeApi(streams_lists=streams)
    fake.put(PODS, make_pod("plain", claims=False))
    fake.put(PODS, make_pod("gpu", claims=True))
    source = source_over(fake)
    found = (await take(source, PODS, None, 1))[:1]
    fake.put(PODS, make_pod("plain", claims=False))
    fake.delete(PODS, default("gpu"))
    found += await take(source, PODS, 102, 2)
    assert found == ["list (plain),gpu @102", "(plain) @103", "DELETED gpu @104"]


# Reading API objects: what is slow to read keeps nobody waiting.


def _deep(members: int) -> bytes:
    """An object as an API server takes it: its managed fields are nested 9,000 levels deep."""
    wide = ",".join(f'"f:{number}":{{}}' for number in range(members))
    return (b'{"metadata":{"managedFields":[' + b'{"f:a":' * 9000 + b"{%b}" % wide.encode() + b"}" * 9000) + b"]}}"


@pytest.mark.parametrize("members", [1, 20_000], ids=["narrow", "wide"])
async def test_an_object_read_aside_is_what_it_would_be_otherwise(members: int) -> None:
    text = _deep(members)
    assert dumps(await loads_aside(text, in_thread)) == dumps(loads(text)) == text


async def test_while_an_odd_object_is_read_others_are_answered() -> None:
    reading = asyncio.create_task(loads_aside(_deep(1), in_thread))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "one turn begins the reading, another one ends it"


def _opaque(length: int) -> bytes:
    """A claim with 20 opaque parameters, in which Go writes each character as an escape."""
    config = b'{"opaque":{"driver":"x","parameters":{"a":"%b"}}}' % (rb"\u003c" * length)
    return b'{"spec":{"devices":{"config":[%b]}}}' % b",".join([config] * 20)


async def test_while_long_opaque_parameters_are_read_others_are_answered() -> None:
    text = _opaque(50_000)
    reading = asyncio.create_task(loads_aside(text, in_thread))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "one turn begins the reading, another one ends it"
    assert dumps(await reading) == text


def test_the_time_for_opaque_parameters_grows_with_their_length_alone() -> None:
    def seconds(length: int) -> float:
        text = _opaque(length)
        began = time.process_time()
        for _ in range(5):
            loads(text)
        return time.process_time() - began

    short = min(seconds(500) for _ in range(3))
    assert min(seconds(5_000) for _ in range(3)) < 25 * short
