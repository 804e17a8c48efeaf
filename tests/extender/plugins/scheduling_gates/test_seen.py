"""What people see of pods at the gate: the same first line as without it, a table, and a problem if nobody lifts it."""

import pytest

from extender import Cluster as SimulatedCluster
from extender.cluster.objects.pods import GATE
from extender.config.settings import Settings
from extender.config.sources import load
from tests.extender.plugins.scheduling_gates.scenes import NOWHERE, gated, site, waiting
from tests.kit.clusters import Cluster, Object, claim, client_of, pod
from tests.kit.objects.quotas import limited, quota

ENABLED = load("schedulingGates: {enabled: true}")

KINDS: dict[str, list[Object]] = {
    "fits": waiting("p"),
    "no device": waiting("p", NOWHERE),
    "no claim": [gated(pod("p", "missing"))],
    "over quota": [*waiting("p"), quota(limited(devices=0))],
}


def without_gates(objects: list[Object]) -> list[Object]:
    return [
        {**each, "spec": {**each["spec"], "schedulingGates": []}} if each["kind"] == "Pod" else each for each in objects
    ]


async def first_line(objects: list[Object], settings: Settings) -> str:
    async with client_of(Cluster.of(*site(), *objects).app(settings)) as client:
        return (await client.get("/explain/ns/p")).text.splitlines()[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gated_pod_is_explained_as_one_without_a_gate(kind: str) -> None:
    assert await first_line(KINDS[kind], ENABLED) == await first_line(without_gates(KINDS[kind]), ENABLED)


async def test_the_explanation_of_a_pod_that_fits_tells_of_its_gate() -> None:
    async with client_of(Cluster.of(*site(), *waiting("p")).app(ENABLED)) as client:
        assert GATE in (await client.get("/explain/ns/p")).text


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_places_a_gated_pod_as_one_without_a_gate(kind: str) -> None:
    def placed(objects: list[Object]) -> list[tuple[str, str, str]]:
        found = SimulatedCluster.from_objects([*site(), *objects], settings=ENABLED).schedule()
        return [(each.pod, each.node, each.reason) for each in found]

    assert placed(KINDS[kind]) == placed(without_gates(KINDS[kind]))


async def answered(objects: list[Object], question: str) -> str:
    async with client_of(Cluster.of(*site(devices=1), *objects).app(ENABLED)) as client:
        return (await client.post("/what-if", content=question)).text


@pytest.mark.parametrize("question", ["drain: [a]", "drain: [a, b]"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_if_places_a_gated_pod_as_one_without_a_gate(kind: str, question: str) -> None:
    found = await answered(KINDS[kind], question)
    assert found == await answered(without_gates(KINDS[kind]), question)


@pytest.mark.parametrize(("settings", "is_stuck"), [(ENABLED, False), (Settings(), True)])
async def test_pods_whose_gate_nobody_lifts_are_a_problem_of_their_namespace(
    settings: Settings, is_stuck: bool
) -> None:
    async with client_of(Cluster.of(*site(), gated(pod("p", "c")), claim("c")).app(settings)) as client:
        rows = (await client.get("/problems", headers={"Accept": "application/json"})).json()["items"]
    assert ("gate" in {each["cause"] for each in rows}) is is_stuck
