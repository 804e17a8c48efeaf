"""Following when news stop: staleness, objects that cannot be read, refusals, kinds that a server lacks."""

import pytest
import structlog

from extender.cluster.cluster_state import NOT_SYNCED, ClusterState
from extender.kube.api import RawObject
from extender.kube.resources import BUDGETS, CLAIMS, DEVICE_QUOTAS, RESOURCES, TAINT_RULES
from tests.extender.kube.live_scenes import (
    RecordingState,
    claim_lists,
    following,
    for_kind,
    make_claim,
    names,
    now,
)
from tests.kit.objects.parts import api_object
from tests.kit.servers.transport import ALL_VERSIONS, FakeApi, Fault
from tests.kit.virtualtime import elapse, run

# --- staleness ----------------------------------------------------------------------------------------------


def test_a_dead_connection_is_noticed_and_replaced_before_anything_is_stale() -> None:
    async def main() -> RecordingState:
        fake, state = FakeApi(), RecordingState()
        fake.fault_for = for_kind(CLAIMS, Fault(silent_after=300))
        async with following(fake, state):
            await elapse(1)
            fake.put(CLAIMS, make_claim("a"))
            await elapse(76)
            fake.put(CLAIMS, make_claim("b"))
            await elapse(1)
            assert names(state) == {"a", "b"}
        return state

    assert run(main()).doubts == []


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


def test_watches_that_end_in_time_are_a_sign_of_life_where_there_are_no_bookmarks() -> None:
    async def main() -> tuple[RecordingState, float]:
        fake, state = FakeApi(bookmarks=False), RecordingState()
        oldest = 0.0
        async with following(fake, state) as cluster:
            for _ in range(1000):
                await elapse(1)
                oldest = max(oldest, cluster.ages()[CLAIMS.kind] or 0.0)
        return state, oldest

    state, oldest = run(main())
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


def test_while_all_is_synced_the_reason_stays_the_same() -> None:
    """Lists end one after the other, and some only after an outage."""

    async def main() -> set[str]:
        fake, state = FakeApi(), ClusterState()
        fake.fault_for = for_kind(CLAIMS, *[Fault(refused=True)] * 3, *[Fault(500)] * 3)
        found = set()
        async with following(fake, state):
            while state.not_ready:
                found.add(state.not_ready)
                await elapse(0.01)
        return found

    assert run(main()) == {NOT_SYNCED}


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
            limits = [{"name": "gpu", "deviceClassName": "gpu", "devices": 1}]
            fake.put(DEVICE_QUOTAS, api_object("DeviceQuota", "gold", namespace="ns", spec={"limits": limits}))
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
