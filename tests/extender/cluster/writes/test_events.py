"""Events on pods: written once, counted after that, within limits, and never in anybody's way."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from allocator.tools import printable
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.writes.events import EventRates, Note, Recorder
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import EVENTS
from tests.kit import virtualtime
from tests.kit.clusters import pod
from tests.kit.servers.memory import Fault, Transport, memory_api
from tests.kit.virtualtime import in_virtual_time

START = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
CREATE, PATCH = "create events", "patch events"
USUAL = EventRates()
CLASH = Note("DevicesTaken", printable("claim ns/a holds what claim ns/b held before"), "Binding")


class Scene:
    """A recorder whose clock is that of the event loop."""

    def __init__(self, rates: EventRates = USUAL) -> None:
        self.api = memory_api()
        self.transport = Transport(self.api)
        self.claims: set[str] = set()
        self.recorder = Recorder(
            self.transport, self.now, instance="host-1", has_claim=lambda uid: uid in self.claims, rates=rates
        )

    @staticmethod
    def now() -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    def run(self, *told: tuple[float, Pod, Note]) -> list[RawObject]:
        """Tell at these seconds; the Events that are there in the end."""

        async def main() -> list[RawObject]:
            for at, of, note in told:
                await virtualtime.elapse(at - asyncio.get_running_loop().time())
                self.recorder.record(of, note)
            await virtualtime.elapse(60)
            return list((await self.api.list(EVENTS)).items)

        return virtualtime.run(main())


P = parse_pod(pod("p"))
Q = parse_pod(pod("q"))


def test_an_event_says_of_which_pod_what_when_and_by_whom() -> None:
    scene = Scene()
    (event,) = scene.run((0, P, CLASH))
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("p.")
    del event["metadata"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-02T03:04:05.000678Z",
        "reportingController": "dra-extender",
        "reportingInstance": "host-1",
        "type": "Warning",
        "reason": "DevicesTaken",
        "action": "Binding",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        "note": CLASH.text,
    }


def test_what_is_said_again_soon_is_only_counted_and_later_written_with_its_count() -> None:
    scene = Scene()
    (event,) = scene.run((0, P, CLASH), (1, P, CLASH), (2, P, CLASH), (400, P, CLASH))
    assert scene.transport.calls == [CREATE, PATCH]
    assert event["series"] == {"count": 4, "lastObservedTime": "2026-01-02T03:10:45.000678Z"}


def test_other_pods_reasons_and_texts_are_events_of_their_own() -> None:
    other = Note("DevicesTaken", printable("another text"), "Binding")
    events = Scene().run((0, P, CLASH), (0, Q, CLASH), (0, P, other), (0, P, Note("Other", CLASH.text)))
    assert len(events) == 4
    assert len({event["metadata"]["name"] for event in events}) == 4


def test_a_pod_has_so_many_in_a_time_and_no_more() -> None:
    scene = Scene(EventRates(per_pod=3, renewal=timedelta(seconds=100)))
    many = [Note("Why", printable(f"text {number}")) for number in range(9)]
    events = scene.run(*((0, P, note) for note in many[:8]), (0, Q, CLASH), (101, P, many[8]))
    texts = sorted(event["note"] for event in events if event["regarding"]["name"] == "p")
    assert texts == ["text 0", "text 1", "text 2", "text 8"]
    assert len(events) == 5


@in_virtual_time
async def test_there_is_a_pause_between_two_writes() -> None:
    scene = Scene(EventRates(pause=7))
    notes = [Note("Why", printable(f"text {number}")) for number in range(3)]
    for note in notes:
        scene.recorder.record(P, note)
    await virtualtime.elapse(13)
    assert len(scene.transport.calls) == 2


@pytest.mark.parametrize("fault", [Fault(refused=ApiError(403, "Forbidden", "no")), Fault(lost=True)])
def test_one_that_can_not_be_written_is_tried_again_when_it_is_told_again(fault: Fault) -> None:
    scene = Scene()
    scene.transport.script(CREATE, fault)
    (event,) = scene.run((0, P, CLASH), (1, Q, CLASH), (2, P, CLASH), (301, Q, CLASH), (302, P, CLASH))[:1]
    assert event["regarding"]["name"] == "q"
    assert scene.transport.calls == [CREATE, CREATE, PATCH, CREATE]


@in_virtual_time
async def test_one_that_has_expired_is_written_anew() -> None:
    scene = Scene()
    scene.recorder.record(P, CLASH)
    await virtualtime.elapse(1)
    (old,) = (await scene.api.list(EVENTS)).items
    await scene.api.delete(EVENTS, ObjectKey("ns", old["metadata"]["name"]))
    await virtualtime.elapse(3600)
    scene.recorder.record(P, CLASH)
    await virtualtime.elapse(1)
    (event,) = list((await scene.api.list(EVENTS)).items)
    assert (event["eventTime"], "series" in event) == ("2026-01-02T04:04:06.000678Z", False)


def test_a_long_text_is_cut_and_a_long_name_as_well() -> None:
    (event,) = Scene().run((0, parse_pod(pod("p" * 253)), Note("Why", printable("ä" * 1000))))
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ä...")


def test_the_least_recently_recorded_event_is_forgotten() -> None:
    scene = Scene(EventRates(kept=2))
    pods = [parse_pod(pod(name)) for name in "abc"]
    scene.run(*((at, each, CLASH) for at, each in enumerate(pods)), (10, pods[0], CLASH))
    assert scene.transport.calls == [CREATE] * 4


def pods_of(namespace: str, number: int) -> list[Pod]:
    made = [pod(f"{namespace}-{each}") for each in range(number)]
    for each in made:
        each["metadata"]["namespace"] = namespace
    return [parse_pod(each) for each in made]


def test_a_namespace_with_many_events_makes_no_other_forget() -> None:
    """An Event that is forgotten would be written again, and the limit of a pod would begin anew."""
    scene = Scene(EventRates(kept=10, per_pod=1))
    (quiet,), busy = pods_of("quiet", 1), pods_of("busy", 100)
    other = Note("Other", printable("text"))
    events = scene.run((0, quiet, CLASH), *((1, each, CLASH) for each in busy), (20, quiet, CLASH), (21, quiet, other))
    assert [event["reason"] for event in events if event["metadata"]["namespace"] == "quiet"] == [CLASH.reason]
    assert len(events) <= 1 + 2 * 10, "of the busy namespace, the latest"


@in_virtual_time
async def test_namespaces_take_turns_at_the_writes() -> None:
    scene = Scene(EventRates(pause=1))
    for each in (*pods_of("busy", 1000), *pods_of("quiet", 2)):
        scene.recorder.record(each, CLASH)
    await virtualtime.elapse(5)
    written = [each["metadata"]["namespace"] for each in (await scene.api.list(EVENTS)).items]
    assert sorted(written) == ["busy"] * 3 + ["quiet"] * 2


GONE = ApiError(404, "NotFound", 'namespaces "ending" not found')
ENDING = ApiError(403, "Forbidden", "unable to create new content in namespace ending because it is being terminated")


@pytest.mark.parametrize("refusal", [GONE, ENDING])
@in_virtual_time
async def test_of_a_namespace_that_ends_one_event_is_tried_and_no_other_one(refusal: ApiError) -> None:
    scene = Scene(EventRates(pause=1))
    scene.transport.script(CREATE, Fault(refused=refusal))
    for each in (*pods_of("ending", 100), *pods_of("other", 2)):
        scene.recorder.record(each, CLASH)
    await virtualtime.elapse(200)
    assert len(scene.transport.calls) == 3
    assert {each["metadata"]["namespace"] for each in (await scene.api.list(EVENTS)).items} == {"other"}


@in_virtual_time
async def test_no_event_is_written_on_a_claim_that_was_deleted_while_the_event_waited() -> None:
    scene = Scene(EventRates(pause=1))
    scene.claims = {"uid-p", "uid-q"}
    note = Note("ClaimNotAllocated", printable("no device"), of_claim=True)
    scene.recorder.record(P, note)
    scene.recorder.record(Q, note)
    scene.claims.discard("uid-q")
    await virtualtime.elapse(10)
    assert [each["regarding"]["name"] for each in (await scene.api.list(EVENTS)).items] == ["p"]


def test_the_text_of_others_is_printable_in_an_event() -> None:
    """Whoever lists Events shows them on a terminal."""
    (event,) = Scene().run((0, P, Note("DevicesTaken", printable("claim a\x1b[2J\nb\u202e"), "Binding")))
    assert event["note"] == r"claim a\x1b[2J\nb\u202e"
