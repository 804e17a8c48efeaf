"""Problems: what is found of each cause, since when, for whom, and within which bounds."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from starlette.types import Receive, Scope, Send

from extender.answers.observe.problems import CAUSES, EVENT, MOST_PROBLEMS, ProblemsKeeper, problems
from extender.answers.observe.scheduler_settings import scheduler_file_of
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.config.sources import load
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver
from extender.faces.http.callers import MAY
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import DEVICE_QUOTAS
from extender.tools.offload import at_once
from extender.tools.table import page
from tests.extender.answers.observe.scenes import ask, items
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    asking,
    claim,
    client_of,
    device_class,
    local_slice,
    node,
    pod,
    request,
    taint_rule,
)
from tests.kit.objects.parts import api_object
from tests.kit.places import CONFIG

LONG_AGO = "2020-01-01T00:00:00Z"
HELD = claim("held", allocated=["a/gpu-0"], at="a", users=["p"])
ROOM = (GPU, node("a"), local_slice("a", 2))


def of_group(name: str, size: str, number: int = 0) -> Object:
    member = pod(f"{name}-{number}", "wanted", created=LONG_AGO)
    annotations = {"dra-extender.dev/group": name, "dra-extender.dev/group-size": size}
    return {**member, "metadata": {**member["metadata"], "annotations": annotations}}


def incomplete(created: str) -> Object:
    found = local_slice("a")
    found["spec"]["pool"]["resourceSliceCount"] = 2
    return {**found, "metadata": {**found["metadata"], "creationTimestamp": created}}


def quota(devices: int) -> Object:
    limits = {"limits": [{"name": "gpu", "deviceClassName": "gpu", "devices": devices}]}
    return api_object("DeviceQuota", "gold", namespace="ns", spec=limits)


def waiting_for_kubelet(name: str, of: str, since: str, phase: str = "Pending") -> Object:
    """A bound pod that the kubelet of its node knows since a time."""
    return {**pod(name, of, on="a"), "status": {"phase": phase, "startTime": since}}


LATELY = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
"""Less than five minutes ago, however long this process runs tests."""

CASES: dict[str, tuple[Sequence[Object], list[tuple[str, str, str]]]] = {
    "all is well": ([*ROOM, HELD, pod("p", "held", on="a"), claim("wanted"), pod("q", "wanted")], []),
    "a pool of which slices are missing": (
        [GPU, node("a"), incomplete(LATELY)],
        [("incomplete-pool", f"{DRIVER}/a", "1 of 2 slices are there")],
    ),
    "a driver that has stopped while it published": (
        [GPU, node("a"), incomplete(LONG_AGO)],
        [("driver-stopped", f"{DRIVER}/a", "its driver has published nothing more since")],
    ),
    "slices of a node that was deleted": (
        [*ROOM, local_slice("b")],
        [("gone-node", f"{DRIVER}/b", "node b, which does not exist")],
    ),
    "a driver that does not run on the node of its slices": (
        [*ROOM, HELD, waiting_for_kubelet("p", "held", LONG_AGO)],
        [("unprepared", f"{DRIVER}/a", f"a pod with its devices has not started for five minutes: driver {DRIVER}")],
    ),
    "a pod that its kubelet has just begun to start": ([*ROOM, HELD, waiting_for_kubelet("p", "held", LATELY)], []),
    "a pod that does not start on a node where a later one has started": (
        [
            *(*ROOM, HELD, waiting_for_kubelet("p", "held", LONG_AGO)),
            claim("late", allocated=["a/gpu-1"], at="a", users=["q"]),
            waiting_for_kubelet("q", "late", LATELY, phase="Running"),
        ],
        [],
    ),
    "a class that selects nothing": (
        [*ROOM, device_class("tpu", selectors=["device.driver == 'tpu'"])],
        [("unmatched-class", "tpu", "its selectors match no device")],
    ),
    "a claim that does not exist": ([*ROOM, pod("q", "gone")], [("missing", "ns/q", "claim gone does not exist")]),
    "a class that does not exist": (
        [*ROOM, claim("tpu", request(device_class="tpu")), pod("q", "tpu")],
        [("missing", "ns/q", "device class tpu does not exist")],
    ),
    "a device in use gets a taint": (
        [*ROOM, HELD, pod("p", "held", on="a"), taint_rule("worn", driver=DRIVER, pool="a", device="gpu-0")],
        [("tainted-in-use", "ns/held", f"holds {DRIVER}/a/gpu-0: tainted broken:NoSchedule by DeviceTaintRule worn")],
    ),
    "two claims hold one device": (
        [*ROOM, HELD, claim("other", allocated=["a/gpu-0"], at="a")],
        [("two-masters", f"ns/{name}", "gpu-0") for name in ("held", "other")],
    ),
    "a gang of which pods are missing": (
        [*ROOM, claim("wanted"), of_group("job", "3")],
        [("gang", "ns/job-0", "1 of 3 pods of group job are there")],
    ),
    "a gang whose size is no number": (
        [*ROOM, claim("wanted"), of_group("job", "many")],
        [("gang", "ns/job-0", "group job gets no devices: ")],
    ),
    "a quota that was lowered": (
        [*ROOM, HELD, claim("more", allocated=["a/gpu-1"], at="a"), quota(1)],
        [("quota", "ns/gold", "limit gpu: 2 of 1 devices are in use")],
    ),
}


def cluster_of(objects: Sequence[Object]) -> Cluster:
    quotas = [each for each in objects if each["kind"] == "DeviceQuota"]
    cluster = Cluster.of(*(each for each in objects if each["kind"] != "DeviceQuota"))
    for each in quotas:
        cluster.state.apply(Event(EventType.ADDED, DEVICE_QUOTAS, each))
    return cluster


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES)
async def test_each_problem_has_its_object_and_what_to_do(
    objects: Sequence[Object], expected: list[tuple[str, str, str]]
) -> None:
    async with client_of(cluster_of(objects).app()) as client:
        found = await items(client, "/problems")
    assert [(each["cause"], each["object"]) for each in found] == [each[:2] for each in expected]
    for row, (_, _, text) in zip(found, expected, strict=True):
        assert text in row["problem"]
        assert all(row[field] for field in ("cost", "advice", "since"))


async def test_five_problems_at_once_are_all_told_and_counted() -> None:
    names = ("slices of a node that was deleted", "a class that selects nothing", "a claim that does not exist")
    more = ("a device in use gets a taint", "a gang of which pods are missing")
    objects = {(each["kind"], each["metadata"]["name"]): each for name in (*names, *more) for each in CASES[name][0]}
    extender = cluster_of([*objects.values()]).extender()
    found = extender.overview.found_problems()
    causes = {"gone-node", "unmatched-class", "missing", "tainted-in-use", "gang"}
    assert {each.problem.cause for each in found} == causes
    counts = extender.overview.problems.counts()
    assert tuple(counts) == CAUSES
    assert {cause for cause, number in counts.items() if number} == causes


async def test_a_selector_that_fails_is_a_problem_once_a_scheduler_has_asked() -> None:
    wanted = claim("c", request(selectors=['device.attributes["gpu.example.com"].modle == "x"']))
    async with client_of(Cluster.of(*ROOM, wanted, pod("q", "c")).app()) as client:
        assert await items(client, "/problems") == []
        await ask(client, "filter", asking(pod("q", "c"), "a"))
        (found,) = await items(client, "/problems")
    assert (found["cause"], found["object"]) == ("selector", "ns/q")
    assert "no such key: modle" in found["problem"]


async def test_pods_that_are_tried_too_early_or_without_backoff_are_settings_of_the_scheduler() -> None:
    made = [pod(f"p{number}") for number in range(5)]
    for each in made:
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    template = {**claim("t"), "kind": "ResourceClaimTemplate", "spec": {"spec": claim("t")["spec"]}}
    async with client_of(
        Cluster.of(*ROOM, template, *made, claim("two", request(count=3)), pod("q", "two")).app()
    ) as client:
        for each in made:
            await ask(client, "filter", asking(each, "a"))
        assert ["not at preEnqueue" in each["problem"] for each in await items(client, "/problems")] == [True]
        for _ in range(21):
            await ask(client, "filter", asking(pod("q", "two"), "a"))
        found = [each for each in await items(client, "/problems") if each["cause"] == "scheduler-settings"]
    assert "rejected pods have no backoff" in found[0]["problem"] + found[1]["problem"]


async def test_what_is_wrong_in_the_schedulers_file_is_told_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    shipped = yaml.safe_load((CONFIG / "scheduler.yaml").read_text())
    settings = load(f"scheduling: {{schedulerFile: {file}}}")
    cluster = Cluster.of(*ROOM)
    around = Surroundings(read_scheduler_file=scheduler_file_of(settings))
    extender = make_extender(cluster.api, cluster.state, make_solver(settings), settings, around=around)

    def found() -> list[tuple[str, str, str]]:
        known = [each.problem for each in extender.overview.found_problems()]
        return [(each.cause, str(each.key), each.text.partition(":")[0]) for each in known]

    assert found() == [("scheduler-settings", str(file), "cannot be read")]
    file.write_text(yaml.safe_dump(shipped))
    assert found() == []
    del shipped["profiles"][0]["plugins"]["preEnqueue"]
    shipped["podMaxBackoffSeconds"] = 300
    file.write_text(yaml.safe_dump(shipped))
    fields = ["podMaxBackoffSeconds", "profiles[0].plugins.preEnqueue.enabled"]
    assert sorted(found()) == [("scheduler-settings", str(file), field) for field in fields]
    assert extender.overview.problems.counts()["scheduler-settings"] == 2


def test_a_problem_without_a_time_of_its_own_is_known_since_the_first_look() -> None:
    cluster = cluster_of(CASES["a device in use gets a taint"][0])
    overview = cluster.extender().overview
    (first,) = overview.found_problems()
    later = replace(overview, now=lambda: datetime.now(UTC) + timedelta(hours=1))
    (again,) = later.found_problems()
    assert again.since == first.since
    (row,) = page(problems(lambda: [again], datetime.fromisoformat(again.since) + timedelta(hours=3)), limit=9).items
    assert row["age"] == 3 * 3600


async def test_rows_are_of_one_namespace_and_of_objects_without_one() -> None:
    objects = [*ROOM, local_slice("b"), pod("q", "gone")]
    async with client_of(Cluster.of(*objects).app()) as client:
        for query, expected in {
            "": ["ns/q", f"{DRIVER}/b"],
            "namespace=ns": ["ns/q", f"{DRIVER}/b"],
            "namespace=other": [f"{DRIVER}/b"],
            "kind=Pod": ["ns/q"],
            "names=false": [f"{DRIVER}/b"],
        }.items():
            assert [each["object"] for each in await items(client, f"/problems?{query}")] == expected


@pytest.mark.parametrize(("may_read_pods", "expected"), [(True, ["ns/q", f"{DRIVER}/b"]), (False, [f"{DRIVER}/b"])])
async def test_who_may_not_read_all_pods_gets_no_names_of_namespaces(may_read_pods: bool, expected: list[str]) -> None:
    app = Cluster.of(*ROOM, local_slice("b"), pod("q", "gone")).app()

    async def may(_verb: str, path: str) -> bool:
        return may_read_pods or path != "/pods"

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, MAY: may}, receive, send)

    async with client_of(guarded) as client:  # type: ignore[arg-type]  # any ASGI application
        assert [each["object"] for each in await items(client, "/problems?names=true")] == expected


def test_a_namespace_with_many_problems_takes_no_room_from_others() -> None:
    many = [pod(f"p{number:05}", "gone") for number in range(MOST_PROBLEMS + 200)]
    other = pod("alone", "gone")
    other["metadata"]["namespace"] = "other"
    found = Cluster.of(*ROOM, other, *many).extender().overview.found_problems()
    assert len(found) == MOST_PROBLEMS
    assert sum(each.problem.advice.startswith("create ResourceClaim ns/gone") for each in found) <= 64
    assert ObjectKey("other", "alone") in {each.problem.key for each in found}


async def test_pods_and_claims_are_told_once_and_only_by_a_process_that_is_asked() -> None:
    told: list[tuple[str, Note]] = []

    def tell(about: Pod, note: Note) -> None:
        told.append((str(about), note))

    objects = [*CASES["a device in use gets a taint"][0], pod("q", "gone"), local_slice("b")]
    extender: Extender = Cluster.of(*objects).extender()
    overview, time = extender.overview, [0.0]
    asked = extender.service.background.asked
    found = overview.problems
    pauses = []

    def pause() -> None:
        pauses.append(time[0])

    keeper = ProblemsKeeper(overview.state, found, pause, at_once, lambda: time[0], tell, asked)
    await keeper.tick()
    assert told == []
    asked.schedulers["dra-scheduler"] = None
    await keeper.tick()
    assert told == [], "it is not time for another look"
    for _ in range(2):
        time[0] += 10
        await keeper.tick()
    assert [(name, note.reason, note.of_claim) for name, note in told] == [
        ("ns/q", EVENT, False),
        ("ns/held", EVENT, True),
    ]
    assert set(pauses) == {0.0, 10.0, 20.0}, "each look lets verbs go first"
