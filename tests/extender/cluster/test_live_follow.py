"""Following for ever: lists again when it must, waits when it should, and says so when it is behind."""

import asyncio
from itertools import pairwise

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.cluster_state import NOT_SYNCED, ClusterState
from extender.cluster.live import FollowTiming, Timing
from extender.kube.api import Event, RawObject, key_of
from extender.kube.connection.transport import HttpRequest
from extender.kube.resources import BUDGETS, CLAIMS, DEVICE_QUOTAS, NODES, PODS, RESOURCES, TAINT_RULES
from tests.extender.kube.live_scenes import (
    RecordingState,
    claim_lists,
    default,
    following,
    for_kind,
    make_claim,
    make_node,
    make_pod,
    names,
    now,
)
from tests.kit.objects.quotas import limited, quota
from tests.kit.servers.transport import ALL_VERSIONS, HEALTHY, FakeApi, Fault
from tests.kit.virtualtime import elapse, in_virtual_time, run


def test_all_kinds_are_synced_and_stay_so() -> None:
    async def main() -> tuple[str, str, ClusterState]:
        fake, state = FakeApi(), ClusterState()
        fake.put(CLAIMS, make_claim("a"))
        fake.put(NODES, make_node("n"))
        fake.put(PODS, make_pod("p", claims=True))
        before = state.not_ready
        async with following(fake, state):
            await elapse(1)
            synced = state.not_ready
            fake.put(CLAIMS, make_claim("b"))
            await elapse(3600)
            return before, synced or state.not_ready, state

    before, after, state = run(main())
    assert before == NOT_SYNCED
    assert after == ""
    assert names(state) == {"a", "b"}
    assert [len(state.snapshot.nodes), len(state.snapshot.pods)] == [1, 1]


def requested(state: ClusterState) -> int:
    """The CPU that pods request of node "n"."""
    found = state.snapshot.requested
    return 0 if found is None else found.get("n", 0)


@pytest.mark.parametrize("streams", [True, False])
def test_the_cpu_of_pods_without_devices_is_followed(*, streams: bool) -> None:
    def running(name: str, phase: str) -> RawObject:
        raw = make_pod(name, claims=name == "gpu")
        return raw | {"spec": raw["spec"] | {"nodeName": "n"}, "status": {"phase": phase}}

    async def main() -> list[int]:
        fake, state = FakeApi(streams_lists=streams), ClusterState(counts_cpu=True, cpu_of_all_pods=True)
        for name in ("gpu", "plain", "other"):
            fake.put(PODS, running(name, "Running"))
        found: list[int] = []
        async with following(fake, state):
            await elapse(1)
            found.append(requested(state))
            fake.put(PODS, running("plain", "Succeeded"))
            fake.put(PODS, running("late", "Pending"))
            await elapse(1)
            found.append(requested(state))
            fake.delete(PODS, default("other"))
            fake.delete(PODS, default("gpu"))
            await elapse(1)
            return [*found, requested(state)]

    assert run(main()) == [3000, 3000, 1000]


@in_virtual_time
async def test_a_watch_that_ends_in_time_goes_on_where_it_was() -> None:
    fake, state = FakeApi(), RecordingState()
    async with following(fake, state):
        for name in "abc":
            await elapse(500)
            fake.put(CLAIMS, make_claim(name))
        await elapse(1)
    watches = fake.watches(CLAIMS)
    assert [event[:2] for event in state.told] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    assert claim_lists(state) == [100]
    since = [request.query.get("resourceVersion") for request in watches]
    assert list(dict.fromkeys(since)) == [None, "100", "101", "102"]


CUTS = {
    "cut": Fault(cut_after=900),
    "cut at once": Fault(cut_after=0),
    "garbage": Fault(garbage_after=2),
    "error": Fault(error_after=2),
    "silence": Fault(silent_after=500),
    "refused": Fault(refused=True),
    "500": Fault(500),
    "503": Fault(503),
    "429": Fault(429, 3.0),
    "404 for a moment": Fault(404),
    "no answer": Fault(hangs=True),
    "410": Fault(410),
    "410 in the watch": Fault(error_after=0, error_code=410),
}


@pytest.mark.parametrize("fault", CUTS.values(), ids=list(CUTS))
@pytest.mark.parametrize("streams", [True, False])
@in_virtual_time
async def test_after_any_failure_the_cache_has_what_the_server_has(fault: Fault, *, streams: bool) -> None:
    fake, state = FakeApi(streams_lists=streams), RecordingState()
    fake.fault_for = for_kind(CLAIMS, fault, fault, Fault(), fault, fault)
    fake.put(CLAIMS, make_claim("gone"))
    async with following(fake, state):
        await elapse(5)
        for name in "abc":
            fake.put(CLAIMS, make_claim(name))
            await elapse(0.2)
        fake.delete(CLAIMS, default("gone"))
        await elapse(600)
        assert state.not_ready == ""
    assert names(state) == {"a", "b", "c"}


@pytest.mark.parametrize("fault", [Fault(cut_after=0), Fault(silent_after=0), Fault(refused=True), Fault(500)])
@in_virtual_time
async def test_a_connection_that_fails_costs_no_list(fault: Fault) -> None:
    fake, state = FakeApi(), RecordingState()
    fake.fault_for = for_kind(CLAIMS, Fault(), Fault(), fault)
    async with following(fake, state):
        await elapse(50)
        fake.put(CLAIMS, make_claim("a"))
        await elapse(100)
    assert claim_lists(state) == [100]
    assert names(state) == {"a"}


@in_virtual_time
async def test_lists_that_no_watch_can_go_on_from_are_asked_for_less_and_less_often() -> None:
    fake, state = FakeApi(), RecordingState()
    expired = Fault(error_after=0, error_code=410)
    fake.put(CLAIMS, make_claim("a"))
    fake.fault_for = lambda request: expired if "resourceVersion" in request.query else Fault()

    async def keep_changing() -> None:
        for number in range(200):
            fake.put(CLAIMS, make_claim("a", number=str(number)))
            await elapse(0.5)

    changing = asyncio.create_task(keep_changing())
    # Without pauses for others, which come by the machine's clock: a slow machine would take in more changes.
    async with following(fake, state, timing=Timing(follow=FollowTiming(yield_seconds=60.0))):
        await changing
    assert 10 < len(claim_lists(state)) < 25


def test_history_that_the_server_forgot_is_made_up_for_by_a_list() -> None:
    async def main() -> RecordingState:
        fake, state = FakeApi(), RecordingState()
        fake.put(CLAIMS, make_claim("a"))
        async with following(fake, state):
            await elapse(1)
            fake.fault_for = lambda _: Fault(refused=True)
            await elapse(610)
            fake.put(CLAIMS, make_claim("b"))
            fake.delete(CLAIMS, default("a"))
            fake.compact()
            fake.fault_for = lambda _: Fault()
            await elapse(30)
            return state

    state = run(main())
    assert names(state) == {"b"}
    assert claim_lists(state) == [101, 103]
    assert state.told == []


def test_a_list_that_is_older_than_what_was_seen_is_discarded_and_repeated() -> None:
    async def main() -> tuple[RecordingState, int]:
        fake, state = FakeApi(streams_lists=False), RecordingState()
        async with following(fake, state):
            await elapse(1)
            for name in "abcd":
                fake.put(CLAIMS, make_claim(name))
            await elapse(1)
            behind = Fault(behind=2)
            fake.fault_for = for_kind(CLAIMS, Fault(error_after=0, error_code=410), behind, behind, behind, behind)
            await elapse(700)
            return state, len(fake.lists(CLAIMS))

    state, pages = run(main())
    assert names(state) == set("abcd")
    assert claim_lists(state) == [100, 104]
    assert pages == 1 + 2 + 2 + 2  # pages of two: of nothing, twice outdated, and at last of all four


@in_virtual_time
async def test_a_list_whose_pages_expire_shows_nothing_of_itself_and_is_begun_anew() -> None:
    fake, state = FakeApi(streams_lists=False), RecordingState()
    for name in "abc":
        fake.put(CLAIMS, make_claim(name))

    def fault_for(request: HttpRequest) -> Fault:
        if (
            "continue" in request.query
            and not state.snapshot.claims
            and "a" in {key.name for key in fake.objects(CLAIMS)}
        ):
            fake.delete(CLAIMS, default("a"))
            fake.compact()
        return Fault()

    fake.fault_for = fault_for
    async with following(fake, state):
        await elapse(10)
    assert names(state) == {"b", "c"}
    assert claim_lists(state) == [104]


@in_virtual_time
async def test_others_have_their_turn_while_a_list_is_read() -> None:
    fake, state = FakeApi(), ClusterState()
    fake.chunk_sizes = (1 << 30,)
    for number in range(50):
        fake.put(CLAIMS, make_claim(f"claim-{number}"))
    turns = 0
    async with following(fake, state, timing=Timing(follow=FollowTiming(yield_seconds=0.0))):
        while not state.snapshot.claims:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 50


@pytest.mark.parametrize(
    ("fault", "pauses"),
    [
        (Fault(500), [0.188, 0.375, 0.75, 1.5, 3.0, 6.0, 7.5, 7.5]),
        (Fault(refused=True), [0.188, 0.375, 0.75, 1.5, 1.5, 1.5, 1.5, 1.5]),
    ],
    ids=["the server fails", "the server is away"],
)
@in_virtual_time
async def test_retries_come_later_each_time_up_to_a_limit_and_not_all_at_once(
    fault: Fault, pauses: list[float]
) -> None:
    fake, times = FakeApi(), list[float]()

    def fault_for(request: HttpRequest) -> Fault:
        if request.path.endswith(CLAIMS.plural):
            times.append(now())
        return fault

    fake.fault_for = fault_for
    async with following(fake, ClusterState()):
        await elapse(60)
    assert [round(later - earlier, 3) for earlier, later in pairwise(times)][: len(pauses)] == pauses
    assert [FollowTiming().pause(3, random) for random in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]


@in_virtual_time
async def test_after_a_server_was_away_its_first_refusals_are_answered_as_if_they_were_the_first() -> None:
    """A server that has just started denies everything for a moment, and then does not know the history any more."""
    fake, state = FakeApi(), ClusterState()
    fake.put(CLAIMS, make_claim("a"))
    async with following(fake, state):
        await elapse(1)
        fake.fault_for = lambda _: Fault(refused=True)
        await elapse(80)
        fake.fault_for = lambda _: Fault(403)
        await elapse(2)
        fake.put(CLAIMS, make_claim("b"))
        fake.compact()
        fake.fault_for = lambda _: HEALTHY
        await elapse(3)
        assert names(state) == {"a", "b"}


@in_virtual_time
async def test_a_busy_server_says_when_to_come_back() -> None:
    fake, times = FakeApi(), list[float]()
    faults = for_kind(CLAIMS, Fault(429, 17.0))

    def fault_for(request: HttpRequest) -> Fault:
        if request.path.endswith(CLAIMS.plural):
            times.append(now())
        return faults(request)

    fake.fault_for = fault_for
    async with following(fake, ClusterState()):
        await elapse(60)
    assert times[:2] == [0.0, 17.0]


def test_no_server_silences_a_watch_for_a_day() -> None:
    async def main() -> set[str]:
        fake, state = FakeApi(), ClusterState()
        fake.fault_for = for_kind(CLAIMS, Fault(429, 86_400.0))
        fake.put(CLAIMS, make_claim("a"))
        async with following(fake, state):
            await elapse(31)
            return names(state)

    assert run(main()) == {"a"}


class FailingState(RecordingState):
    """A cache that fails with one claim, as often as it is told to."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def apply(self, event: Event) -> None:
        if key_of(event.object).name == "b" and self._times:
            self._times -= 1
            raise RuntimeError("a mistake of ours")
        super().apply(event)


def test_a_mistake_of_ours_doubts_the_kind_until_it_is_listed_again() -> None:
    async def main() -> tuple[FailingState, set[str], str]:
        fake, state = FakeApi(), FailingState(times=1)
        async with following(fake, state):
            await elapse(1)
            fake.put(CLAIMS, make_claim("b"))
            await elapse(0.1)
            fake.put(NODES, make_node("n"))
            doubted = state.not_ready
            await elapse(5)
            assert [*state.snapshot.nodes] == ["n"]
            return state, names(state), doubted

    with structlog.testing.capture_logs() as logs:
        state, found, doubted = run(main())
    assert found == {"b"}
    assert doubted == "following it failed, see the log"
    assert not state.not_ready
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["following failed"]


# --- nothing lost, nothing doubled --------------------------------------------------------------------------

NAMES = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("compact"), st.just("")),
    st.tuples(st.just("wait"), st.sampled_from(["0.01", "1", "30", "100", "400"])),
)
FAULTS = st.one_of(
    st.just(Fault()),
    st.integers(0, 2000).map(lambda count: Fault(cut_after=count)),
    st.integers(0, 2000).map(lambda count: Fault(silent_after=count)),
    st.integers(0, 4).map(lambda count: Fault(garbage_after=count)),
    st.tuples(st.integers(0, 4), st.sampled_from([410, 500, 504])).map(
        lambda drawn: Fault(error_after=drawn[0], error_code=drawn[1])
    ),
    st.sampled_from([429, 500, 503, 410, 404, 403]).map(lambda status: Fault(status, 1.0)),
    st.sampled_from([Fault(refused=True), Fault(hangs=True)]),
    st.integers(1, 5).map(lambda count: Fault(behind=count)),
)


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    faults=st.lists(FAULTS, max_size=12),
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=4),
    streams=st.booleans(),
    as_event=st.booleans(),
)
@in_virtual_time
async def test_whatever_happens_the_cache_ends_up_with_what_the_server_has(
    steps: list[tuple[str, str]], faults: list[Fault], sizes: list[int], *, streams: bool, as_event: bool
) -> None:
    fake = FakeApi(streams_lists=streams, chunk_sizes=tuple(sizes), expired_as_event=as_event)
    fake.fault_for = for_kind(CLAIMS, *faults)
    state = RecordingState()
    async with following(fake, state):
        for step, argument in steps:
            await play(fake, step, argument)
        await elapse(2000)
    claims = fake.objects(CLAIMS)
    assert state.not_ready == ""
    assert {key: state.snapshot.claims[key].resource_version for key in state.snapshot.claims} == {
        key: obj["metadata"]["resourceVersion"] for key, obj in claims.items()
    }
    revisions = [revision for _, _, revision in state.told]
    assert revisions == sorted(set(revisions))
    lists = claim_lists(state)
    assert lists == sorted(lists)


async def play(fake: FakeApi, step: str, argument: str) -> None:
    match step:
        case "put":
            fake.put(CLAIMS, make_claim(argument, at=str(fake.revision)))
        case "delete":
            fake.delete(CLAIMS, default(argument))
        case "compact":
            fake.compact()
        case _:
            await elapse(float(argument))


# Following when news stop: staleness, objects that cannot be read, refusals, kinds that a server lacks.


# --- staleness ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_dead_connection_is_noticed_and_replaced_before_anything_is_stale() -> None:
    fake, state = FakeApi(), RecordingState()
    fake.fault_for = for_kind(CLAIMS, Fault(silent_after=300))
    async with following(fake, state):
        await elapse(1)
        fake.put(CLAIMS, make_claim("a"))
        await elapse(76)
        fake.put(CLAIMS, make_claim("b"))
        await elapse(1)
        assert names(state) == {"a", "b"}
    assert state.doubts == []


def test_what_is_too_old_is_doubted_until_it_is_listed_again() -> None:
    async def main() -> tuple[list[float], list[str], RecordingState]:
        fake, state = FakeApi(), RecordingState()
        async with following(fake, state) as cluster:
            await elapse(100)
            age = cluster.ages()[CLAIMS.kind] or 0.0
            fake.fault_for = lambda _: Fault(refused=True)
            fake.put(CLAIMS, make_claim("a"))
            texts = []
            for seconds in (700, 10):
                await elapse(seconds)
                texts.append(state.not_ready)
            oldest = cluster.ages()[CLAIMS.kind] or 0.0
            fake.fault_for = lambda _: Fault()
            await elapse(20)
            return [age, oldest], [*texts, state.not_ready], state

    ages, texts, state = run(main())
    assert ages[0] == pytest.approx(6)  # since the second watch of 47 s ended
    assert ages[1] > 90
    assert texts[0] == texts[1]
    assert texts[0] == "nothing heard for more than 90 s"
    assert texts[2] == ""
    assert claim_lists(state) == [100, 101]


@in_virtual_time
async def test_watches_that_end_in_time_are_a_sign_of_life_where_there_are_no_bookmarks() -> None:
    fake, state = FakeApi(bookmarks=False), RecordingState()
    oldest = 0.0
    async with following(fake, state) as cluster:
        for _ in range(1000):
            await elapse(1)
            oldest = max(oldest, cluster.ages()[CLAIMS.kind] or 0.0)
    assert state.doubts == []
    assert claim_lists(state) == [100]
    assert oldest == pytest.approx(47)


def test_watches_that_end_at_once_are_none() -> None:
    async def main() -> tuple[RecordingState, int]:
        fake, state = FakeApi(bookmarks=False), RecordingState()
        async with following(fake, state):
            await elapse(1)
            ended = Fault(ends_at_once=True)
            fake.fault_for = lambda request: ended if "resourceVersion" in request.query else Fault()
            await elapse(200)
            return state, len(fake.watches(CLAIMS))

    state, watches = run(main())
    assert (CLAIMS.kind, "nothing heard for more than 90 s") in state.doubts
    assert watches < 60


def test_old_news_after_a_long_silence_restores_no_trust() -> None:
    async def main() -> tuple[str, list[str], str]:
        fake, state = FakeApi(), RecordingState()
        fake.fault_for = for_kind(CLAIMS, Fault(), Fault(500), Fault(500))
        async with following(fake, state) as cluster:
            await elapse(1)
            for follower in cluster.followers:
                follower.check(now() + 100)
            doubted = state.not_ready
            fake.put(CLAIMS, make_claim("a"))
            await elapse(0.1)
            told = [event[1] for event in state.told]
            await elapse(10)
            return doubted, told, state.not_ready if names(state) == {"a"} else "not listed"

    doubted, told, after = run(main())
    assert doubted == "nothing heard for more than 90 s"
    assert told == []
    assert after != "not listed"


# --- objects that can't be read -----------------------------------------------------------------------------


def test_an_object_that_cannot_be_read_is_told_once_for_what_is_wrong_with_it() -> None:
    def broken(requests: object) -> RawObject:
        return {**make_claim("a"), "spec": {"devices": {"requests": requests}}}

    async def main() -> int:
        fake, state = FakeApi(), RecordingState()
        for each in (broken("none"), make_claim("fine")):
            fake.put(CLAIMS, each)
        async with following(fake, state):
            await elapse(1)
            for each in (broken("none"), broken(5), make_claim("a"), broken(5)):
                fake.put(CLAIMS, each)
                await elapse(1)
            fake.fault_for = for_kind(CLAIMS, Fault(error_after=0, error_code=410))
            await elapse(3600)
        return len(claim_lists(state))

    with structlog.testing.capture_logs() as lines:
        assert run(main()) == 2
    told = [line for line in lines if line["event"] == "object can't be read"]
    assert {(line["log_level"], line["resource"], line["object"]) for line in told} == {
        ("warning", str(CLAIMS), "default/a")
    }
    mistakes = ['spec.devices.requests: "none" is not a list', *["spec.devices.requests: 5 is not a list"] * 2]
    assert [line["problem"] for line in told] == mistakes


# --- refusals and absences ----------------------------------------------------------------------------------


def test_a_refusal_is_named_until_it_is_lifted() -> None:
    async def main() -> list[str]:
        fake, state = FakeApi(), ClusterState()
        forbidden = Fault(403, reason="Forbidden", message="cannot list resourceclaims")
        fake.fault_for = for_kind(CLAIMS, *[forbidden] * 5)
        async with following(fake, state):
            await elapse(1)
            first = state.not_ready
            await elapse(60)
            return [first, state.not_ready]

    assert run(main()) == [f"{NOT_SYNCED}: cannot list resourceclaims", ""]


@in_virtual_time
async def test_while_all_is_synced_the_reason_stays_the_same() -> None:
    """Lists end one after the other, and some only after an outage."""
    fake, state = FakeApi(), ClusterState()
    fake.fault_for = for_kind(CLAIMS, *[Fault(refused=True)] * 3, *[Fault(500)] * 3)
    found = set()
    async with following(fake, state):
        while state.not_ready:
            found.add(state.not_ready)
            await elapse(0.01)
    assert found == {NOT_SYNCED}


def test_a_kind_that_the_server_lacks_is_empty_and_looked_for_again() -> None:
    async def main() -> tuple[str, int, str]:
        fake, state = FakeApi(), ClusterState()
        async with following(fake, state):
            await elapse(200)
            before = state.not_ready
            v1 = ALL_VERSIONS["resource.k8s.io"]["v1"] | {TAINT_RULES.plural}
            fake.served = {**ALL_VERSIONS, "resource.k8s.io": {"v1": v1}}
            rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"}}
            taint = {"key": "example.com/broken", "effect": "NoSchedule"}
            fake.put(TAINT_RULES, {**rule, "spec": {"taint": taint}})
            await elapse(200)
            return before, len(state.snapshot.rules), state.not_ready

    assert run(main()) == ("", 1, "")


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_definition_without_the_right_to_list_its_objects_is_named_until_one_of_them_changes(
    *, is_removed: bool
) -> None:
    async def main() -> tuple[str, str, int]:
        fake, state = FakeApi(), ClusterState()
        async with following(fake, state):
            await elapse(1)
            fake.served = {
                **ALL_VERSIONS,
                DEVICE_QUOTAS.group: {DEVICE_QUOTAS.versions[0]: frozenset({DEVICE_QUOTAS.plural})},
            }
            fake.put(DEVICE_QUOTAS, quota(limited(devices=1)))
            forbidden = Fault(403, reason="Forbidden", message="cannot list devicequotas")
            fake.fault_for = for_kind(DEVICE_QUOTAS, *[forbidden] * 1000)
            await elapse(61)
            before = state.doubt_of(DEVICE_QUOTAS)
            if is_removed:
                fake.served = ALL_VERSIONS  # and the right is still missing
            else:
                fake.fault_for = for_kind(DEVICE_QUOTAS)
            await elapse(11)
            return before, state.not_ready, len(state.snapshot.device_quotas)

    assert run(main()) == (f"{NOT_SYNCED}: cannot list devicequotas", "", 0 if is_removed else 1)


def test_a_server_that_changed_its_versions_is_followed_to_the_new_one_and_listed_in_it() -> None:
    async def main() -> tuple[RecordingState, str]:
        fake, state = FakeApi(), RecordingState()
        fake.put(CLAIMS, make_claim("before"))
        async with following(fake, state):
            await elapse(1)
            old = {"v1beta2": ALL_VERSIONS["resource.k8s.io"]["v1beta2"]}
            fake.served = {**ALL_VERSIONS, "resource.k8s.io": old}
            fake.put(CLAIMS, {**make_claim("a"), "apiVersion": "resource.k8s.io/v1beta2"})
            await elapse(700)
            return state, fake.watches(CLAIMS)[-1].path

    state, path = run(main())
    assert names(state) == {"before", "a"}
    assert claim_lists(state) == [101, 102]
    assert path == "/apis/resource.k8s.io/v1beta2/resourceclaims"


def test_budgets_may_be_missing() -> None:
    async def main() -> str:
        served = {group: versions for group, versions in ALL_VERSIONS.items() if group != "policy"}
        fake, state = FakeApi(served=served), ClusterState()
        async with following(fake, state):
            await elapse(400)
            return state.not_ready

    assert run(main()) == ""
    assert BUDGETS.kind in RESOURCES
