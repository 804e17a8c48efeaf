"""Admission checks that nobody answers, or nobody asks: off, without Kueue, or with Kueue in trouble."""

from typing import Any

import pytest

from extender.config.sources import load
from extender.kube.discovery import Served
from extender.kube.permissions import Use, needed
from extender.kube.resources import NODES, OF_KUEUE, RESOURCES, WORKLOADS
from extender.plugins.admission_checks.task import AdmissionChecks
from tests.extender.plugins.admission_checks.scenes import Scene, check, site, workload
from tests.kit.clusters import Cluster, client_of, node

ON = load("admissionChecks: {enabled: true}")


def test_the_task_is_there_only_if_it_is_turned_on() -> None:
    for settings, number in ((load(""), 0), (ON, 1)):
        tasks = Cluster.of().service(settings).background.tasks
        assert sum(isinstance(each, AdmissionChecks) for each in tasks) == number


@pytest.mark.parametrize(
    ("settings", "objects", "is_told"),
    [
        (load(""), [], False),
        (ON, [], True),
        (ON, [check("other", "example.com/other")], True),
        (ON, [check()], False),
    ],
    ids=["off", "no Kueue", "a check of others", "a check"],
)
async def test_it_is_told_that_nobody_asks(settings: Any, objects: list[Any], is_told: bool) -> None:
    async with client_of(Cluster.of(node("n"), *objects).app(settings)) as client:
        rows = (await client.get("/problems", headers={"Accept": "application/json"})).json()["items"]
    assert ("admission-check" in {each["cause"] for each in rows}) is is_told


async def test_kueue_in_trouble_keeps_no_pod_from_its_node_and_no_job_is_answered_meanwhile() -> None:
    scene = Scene(*site(), workload("a"))
    scene.cluster.state.doubt(WORKLOADS, "nothing heard")
    assert not scene.cluster.state.not_ready
    await scene.turns()
    assert (await scene.told("a"))[0] == "Pending"
    scene.cluster.state.trust(WORKLOADS)
    await scene.turns()
    assert (await scene.told("a"))[0] == "Ready"
    scene.cluster.state.doubt(NODES, "nothing heard")
    assert scene.cluster.state.not_ready


def test_kinds_that_are_not_followed_need_no_right() -> None:
    served = Served({kind: resource.versions[0] for kind, resource in RESOURCES.items()})
    without = Use(tuple(each for each in RESOURCES.values() if each not in OF_KUEUE))
    every, some = (needed(served, (1, 37), use) for use in (Use(), without))
    assert {each.resource for each in {*every} - {*some}} == {*OF_KUEUE}
