"""The marker, by which kube-scheduler knows the pods that it has to ask about: for all others it is no device."""

from typing import Any

import pytest

from allocator import Quantity
from extender import Cluster, Settings
from extender.answers.explain.explanation import Conclusion
from extender.cluster.objects.extended_resources import MARKER
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.objects.pods import is_extended
from extender.cluster.resource_quotas import pod_charges
from extender.config.sources import load
from extender.framework.pods.extended_resources import wanted
from extender.framework.wire import FilterArgs
from extender.kube.api import ApiError
from extender.kube.resources import PODS, QUOTAS
from extender.lab.manifests import load_objects
from extender.planning.kube_scheduler import not_marked
from tests.kit import clusters
from tests.kit.clusters import GPU, Object, binding, claim, device_class, local_slice, node, parsed, pinned, pod
from tests.kit.objects.quotas import resource_quota
from tests.kit.servers.memory import memory_api
from tests.kit.virtualtime import in_virtual_time

RESOURCE = "example.com/gpu"
GPU_RESOURCE = device_class(extended=RESOURCE)


def marked(name: str = "p", *claims: str, resources: dict[str, str] | None = None, **more: Any) -> Object:
    """A pod as the policy leaves it."""
    return pod(name, *claims, resources={**(resources or {}), MARKER: "1"}, **more)


class TestReading:
    def test_it_is_no_extended_resource(self) -> None:
        assert not is_extended(MARKER)
        read = parsed(marked("p", "a"))
        assert (read.containers, wanted(read), read.marker) == ((), (), Quantity.from_int(1).nano)
        assert parsed(pod("p", "a")).marker is None

    def test_a_pod_with_the_marker_alone_needs_no_devices(self) -> None:
        assert not parsed(marked()).needs_devices

    def test_requests_of_a_special_claim_are_numbered_as_in_tree(self) -> None:
        """The plugin of kube-scheduler counts all names that a container requests, the marker too."""
        (container,) = parsed(marked(resources={RESOURCE: "1"})).containers
        assert [(each.index, each.resource) for each in container.requests] == [(1, RESOURCE)]

    @pytest.mark.parametrize("field", ["requests", "limits"])
    def test_any_container_may_name_it_in_requests_or_limits(self, field: str) -> None:
        raw = pod("p", "a")
        raw["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": {field: {MARKER: "2"}}}]
        assert parsed(raw).marker == Quantity.from_int(2).nano

    def test_what_a_node_offers_of_it_is_not_read(self) -> None:
        assert parse_node_object(node("n", allocatable={MARKER: "5"})).allocatable == {}


async def test_a_pod_with_claims_is_filtered_and_bound() -> None:
    cluster = clusters.Cluster.of(node("n"), node("m"), GPU, local_slice("n"), claim("a"), marked("p", "a"))
    service = cluster.service()
    found = await service.filter(FilterArgs(parsed(marked("p", "a")), ["n", "m"]))
    assert list(found.passed) == ["n"]
    async with clusters.client_of(cluster.app()) as client:
        answer = await client.post("/bind", json=binding("p", "n"))
    assert answer.json().get("Error", "") == ""
    assert await cluster.node_of("p") == "n"


async def test_a_class_that_takes_its_name_serves_nobody() -> None:
    cluster = clusters.Cluster.of(node("n"), device_class(extended=MARKER), local_slice("n"), marked("p"))
    found = await cluster.service().filter(FilterArgs(parsed(marked("p")), ["n"]))
    assert list(found.passed) == ["n"]


class TestAnswers:
    OBJECTS = (node("n"), node("m"), GPU, local_slice("n"), claim("a"))

    def test_validate_takes_it_and_does_not_ask_for_it(self) -> None:
        for each in (marked("p", "a"), pod("p", "a"), marked()):
            assert load_objects([*self.OBJECTS, each], "objects").problems == ()

    def test_as_an_api_server_validate_refuses_a_part_of_it(self) -> None:
        found = load_objects([pod("p", "a", resources={MARKER: "500m"})], "objects").problems
        assert [str(each) for each in found if MARKER in str(each)]

    @pytest.mark.parametrize("written", [marked("p", "a"), pod("p", "a")], ids=["marked", "unmarked"])
    def test_simulate_neither_asks_for_it_nor_refuses_it(self, written: Object) -> None:
        cluster = Cluster.from_objects([*self.OBJECTS, written])
        assert cluster.explain("ns/p").verdict is Conclusion.FITS
        (placement,) = cluster.schedule()
        assert (placement.node, len(placement.devices)) == ("n", 1)

    def test_it_takes_nothing_of_a_node_that_offers_it(self) -> None:
        """Such as a node of manifests: kube-scheduler ignores the resource, too."""
        cluster = Cluster.from_objects([node("n", allocatable={MARKER: "1", "cpu": "8"}), marked("p"), marked("q")])
        assert [each.node for each in cluster.schedule()] == ["n", "n"]

    def test_extended_resources_beside_it_are_served(self) -> None:
        cluster = Cluster.from_objects(
            [node("n"), GPU_RESOURCE, local_slice("n"), marked("p", resources={RESOURCE: "1"})]
        )
        (placement,) = cluster.schedule()
        assert (placement.node, len(placement.devices)) == ("n", 1)

    def test_evictions_are_for_devices_and_not_for_it(self) -> None:
        held = claim("held", allocated=["n/gpu-0"], at="n", users=["low"])
        low = marked("low", "held", on="n", labels={"app": "low"})
        cluster = Cluster.from_objects(
            [node("n"), GPU, local_slice("n"), claim("a"), held, low, marked("p", "a", priority=9)]
        )
        found = cluster.explain("ns/p")
        assert found.verdict is Conclusion.FITS_NOWHERE
        assert MARKER not in f"{found.summary} {found.headline} {found.advice}"


class TestQuotas:
    def test_a_pod_is_charged_for_it_as_by_an_api_server(self) -> None:
        charges = pod_charges(parsed(marked("p", resources={RESOURCE: "2"})))
        assert charges == {f"requests.{RESOURCE}": Quantity.from_int(2), f"requests.{MARKER}": Quantity.from_int(1)}

    @in_virtual_time
    async def test_a_quota_may_limit_the_number_of_pods_with_devices(self) -> None:
        api = memory_api()
        await api.create(QUOTAS, resource_quota({f"requests.{MARKER}": "1"}))
        await api.create(PODS, marked("p", "a"))
        with pytest.raises(ApiError, match=f"exceeded quota.*{MARKER}"):
            await api.create(PODS, marked("q", "b"))


class TestExplain:
    """With `scheduling.markedPodsOnly`, explain says why the scheduler does not ask about a pod."""

    NEEDED = load("scheduling: {markedPodsOnly: true}")
    WORLD = (node("n"), GPU, local_slice("n"), claim("a"))
    LACKS = f"the pod lacks the resource {MARKER}"

    async def explained(self, path: str, *objects: Object, settings: Settings = NEEDED) -> str:
        cluster = clusters.Cluster.of(*self.WORLD, *objects)
        async with clusters.client_of(cluster.app(settings)) as client:
            return (await client.get(f"/explain/{path}")).raise_for_status().text

    @pytest.mark.parametrize(
        ("asking", "settings", "is_told"),
        [
            (pod("p", "a"), NEEDED, True),
            (marked("p", "a"), NEEDED, False),
            (pod("p", "a"), Settings(), False),
            (pinned("p", "a"), NEEDED, True),
            (marked("p", "a", on="n"), NEEDED, False),
        ],
        ids=["waits", "is marked", "is not needed", "is caught on a node", "has a node and is marked"],
    )
    async def test_a_pod_is_told_that_it_lacks_the_marker(
        self, asking: Object, settings: Settings, *, is_told: bool
    ) -> None:
        assert (self.LACKS in await self.explained("ns/p", asking, settings=settings)) is is_told

    def test_a_pod_without_devices_needs_no_marker(self) -> None:
        assert not not_marked(parsed(pod("p")))

    async def test_a_pod_that_has_its_claims_is_not_told(self) -> None:
        held = claim("b", allocated=["n/gpu-0"], at="n", users=["p"])
        assert self.LACKS not in await self.explained("ns/p", held, pod("p", "b", on="n"))


class TestProblems:
    """`/problems` names the pods that came past the policies."""

    def causes(self, *objects: Object, settings: str = "scheduling: {markedPodsOnly: true}") -> list[tuple[str, str]]:
        cluster = clusters.Cluster.of(node("n"), GPU, local_slice("n"), claim("a"), *objects)
        found = cluster.extender(load(settings)).overview.found_problems()
        return sorted((each.problem.cause, str(each.problem.key)) for each in found)

    def test_pods_without_the_marker_that_have_not_started_are_named(self) -> None:
        assert self.causes(pod("p", "a"), pinned("q", "a"), marked("r", "a"), pod("s"), pod("t", "a", on="n")) == [
            ("unmarked", "ns/p"),
            ("unmarked", "ns/q"),
        ]

    def test_where_the_scheduler_asks_about_all_pods_there_is_no_problem(self) -> None:
        assert self.causes(pod("p", "a"), settings="{}") == []
