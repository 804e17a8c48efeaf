"""Extended resources at work: device plugin or special claim, node by node; and the special claim's life (KEP-5004)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from allocator.features import Features
from extender.cluster.api import CLAIMS, CLASSES, NODES, PODS, SLICES, ApiError, ObjectKey, RawObject, Resource
from extender.cluster.objects import SPECIAL, parse_claim_object
from extender.cluster.reservation import FINALIZER
from extender.cluster.state import ClusterState
from extender.cluster.writer import Writer
from extender.extended import demand, is_ours, special_claim
from extender.verbs.bind import Binder, BindError
from extender.verbs.clashes import Clashes
from extender.verbs.filter import filter_nodes
from extender.verbs.preempt import Victims, choose_victims
from extender.verbs.sweep import IDLE, PERIOD, Sweep
from tests.extender import virtualtime
from tests.extender.apis import NOW, Fault, Transport, memory_api, writes
from tests.extender.clusters import claim, device_class, local_slice, node, pod, solver

EVERYTHING = Features()
GPU = "example.com/gpu"
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")
CREATE, PROTECT, ALLOCATE = "create resourceclaims", "update resourceclaims", "update_status resourceclaims"
TELL, BIND, DELETE = "patch_status pods", "bind pods", "delete resourceclaims"


def asking(amount: str = "1", *claims: str, name: str = "p", **resources: str) -> RawObject:
    return pod(name, *claims, resources={GPU: amount, "cpu": "1", **resources})


class Scene:
    """Nodes n and o have two devices each, m has a device plugin with four; a class serves example.com/gpu."""

    def __init__(self, *objects: RawObject) -> None:
        there = [
            node("n"),
            node("o"),
            node("m", allocatable={GPU: "4"}),
            local_slice("n", 2),
            local_slice("o", 2),
            device_class(extended=GPU),
        ]
        self.api = memory_api(*there, *objects)
        self.new_process()

    def new_process(self) -> None:
        """The extender starts anew: it knows what the API server has."""
        self.state = ClusterState()
        self.api.follow(self.state)
        self.transport = Transport(self.api)
        clashes = Clashes(lambda: None, lambda _pod, _note: None)
        writer = Writer(self.transport, self.state, lambda: NOW)
        self.binder = Binder(self.state, writer, solver(), deadline=4, clashes=clashes)

    def filter(
        self, name: str = "p", nodes: Sequence[str] = ("n", "m", "o"), features: Features = EVERYTHING
    ) -> dict[str, str]:
        """The reason against each node; empty for those that will do."""
        snapshot = self.state.snapshot
        result = filter_nodes(snapshot.pods[ObjectKey("ns", name)], nodes, snapshot, solver(features=features))
        return dict.fromkeys(result.passed, "") | dict(result.unresolvable) | dict(result.failed)

    def bind(self, on: str = "n", name: str = "p") -> str:
        return virtualtime.run(self._bind(on, name))

    async def _bind(self, on: str, name: str = "p") -> str:
        try:
            await self.binder.bind(ObjectKey("ns", name), f"uid-{name}", on)
        except BindError as error:
            return str(error)
        return ""

    @property
    def special(self) -> list[RawObject]:
        claims = virtualtime.run(self.api.list(CLAIMS)).items
        return [each for each in claims if each["metadata"].get("annotations", {}).get(SPECIAL) == "true"]

    def status(self, name: str = "p") -> dict[str, Any]:
        found: RawObject = virtualtime.run(self.api.get(PODS, ObjectKey("ns", name)))
        return {"nodeName": found["spec"].get("nodeName"), **(found["status"].get("extendedResourceClaimStatus") or {})}

    @property
    def held(self) -> set[str]:
        pools = self.state.snapshot.usage.pools.items()
        return {f"{pool.pool}/{device}" for pool, devices in pools for device in devices}


def devices(raw: RawObject) -> list[str]:
    results = (raw["status"].get("allocation") or {"devices": {"results": []}})["devices"]["results"]
    return [f"{each['pool']}/{each['device']}" for each in results]


class TestPerNode:
    def test_a_device_plugin_serves_where_there_is_one_and_devices_elsewhere(self) -> None:
        scene = Scene(asking("2"), claim("other", allocated=["o/gpu-0"], at="o", users=["q"]))
        missing = "not enough free devices for request container-0-request-1"
        assert scene.filter() == {"n": "", "m": "", "o": missing}

    def test_a_plugin_whose_devices_are_all_gone_is_none(self) -> None:
        scene = Scene(asking(), node("z", allocatable={GPU: "0"}))
        assert scene.filter(nodes=["z"]) == {"z": "no device for request container-0-request-1"}

    def test_nobody_offers_it(self) -> None:
        scene = Scene(asking("1", **{"example.com/nic": "1"}))
        reason = "neither a device plugin nor a device class offers extended resource example.com/nic"
        assert scene.filter() == {"n": reason, "m": reason, "o": reason}

    def test_what_no_class_serves_is_the_schedulers_matter(self) -> None:
        scene = Scene(pod("p", resources={"example.com/nic": "1"}))
        assert scene.filter() == {"n": "", "m": "", "o": ""}

    def test_nor_is_anything_ours_where_the_feature_is_off(self) -> None:
        scene = Scene(claim("a"), asking("9", "a"))
        assert set(scene.filter().values()) == {
            "not enough free devices for request container-0-request-1",
            "no device for request gpu",
        }
        off = replace(EVERYTHING, extended_resource=False)
        assert scene.filter(features=off) == {"n": "", "m": "no device for request gpu", "o": ""}

    def test_but_no_pod_is_bound_where_nobody_offers_what_it_needs(self) -> None:
        scene = Scene(asking())
        virtualtime.run(scene.api.delete(CLASSES, ObjectKey("", "gpu")))
        reason = f"node n: neither a device plugin nor a device class offers extended resource {GPU}"
        assert scene.bind("n") == reason
        assert scene.bind("m") == ""

    def test_the_implicit_name(self) -> None:
        scene = Scene(pod("p", resources={"deviceclass.resource.kubernetes.io/gpu": "1"}))
        assert scene.filter() == {"n": "", "m": "no device for request container-0-request-0", "o": ""}

    def test_of_a_class_that_does_not_exist(self) -> None:
        scene = Scene(pod("p", resources={"deviceclass.resource.kubernetes.io/none": "1"}))
        assert set(scene.filter().values()) == {"device class none does not exist"}

    def test_a_count_that_no_claim_can_hold_needs_a_plugin(self) -> None:
        scene = Scene(asking("1k"))
        reason = "extended resources need 1000 devices, a claim can hold 32"
        assert scene.filter() == {"n": reason, "m": "", "o": reason}

    def test_with_claims_of_its_own_it_is_one_problem(self) -> None:
        scene = Scene(claim("a"), claim("b"), asking("1", "a"), asking("1", "b", name="q"))
        assert scene.bind("n") == ""
        taken = [f"n/gpu-{index}" for index in range(2)]
        assert sorted(scene.held) == taken
        assert scene.filter("q")["n"] == "no free device for request gpu"


class TestBind:
    def test_the_special_claim_is_made_allocated_reserved_and_named_in_the_pods_status(self) -> None:
        scene = Scene(asking("2"))
        assert scene.bind() == ""
        assert scene.transport.calls == [CREATE, PROTECT, ALLOCATE, TELL, BIND]
        (made,) = scene.special
        assert made["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        ]
        assert made["metadata"]["finalizers"] == [FINALIZER]
        assert made["metadata"]["name"].startswith("p-extended-resources-")
        assert made["spec"]["devices"]["requests"] == [
            {"name": "container-0-request-1", "exactly": {"deviceClassName": "gpu", "count": 2}}
        ]
        assert devices(made) == ["n/gpu-0", "n/gpu-1"]
        assert [user["name"] for user in made["status"]["reservedFor"]] == ["p"]
        mapping = {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-1"}
        assert scene.status() == {
            "nodeName": "n",
            "resourceClaimName": made["metadata"]["name"],
            "requestMappings": [mapping],
        }
        assert not scene.state.snapshot.in_flight

    def test_where_a_device_plugin_serves_there_is_none(self) -> None:
        scene = Scene(asking())
        assert scene.bind("m") == ""
        assert (scene.special, scene.status()) == ([], {"nodeName": "m"})
        assert writes(scene.transport.calls) == [BIND]

    def test_its_devices_are_taken_from_the_moment_of_the_decision(self) -> None:
        scene = Scene(asking("2"), asking("1", name="q"))
        scene.transport.script(CREATE, Fault(seconds=1))

        async def both() -> list[str]:
            first = asyncio.create_task(scene._bind("n"))
            await asyncio.sleep(0.5)
            return [await scene._bind("n", "q"), await first]

        assert virtualtime.run(both()) == ["node n: no free device for request container-0-request-1", ""]

    def test_a_pod_of_two_claims_gets_all_or_nothing(self) -> None:
        scene = Scene(claim("a"), asking("1", "a"))
        scene.transport.script(CREATE, Fault(refused=FORBIDDEN))
        (answer,) = [scene.bind()]
        assert answer.endswith("not allowed")
        assert (scene.special, scene.held) == ([], set())

    def test_the_api_server_drops_the_pods_status(self) -> None:
        scene = Scene(asking())

        def without(reply: RawObject) -> RawObject:
            reply["status"].pop("extendedResourceClaimStatus")
            return reply

        scene.transport.script(TELL, Fault(reply=without))
        dropped = "status.extendedResourceClaimStatus (feature gate DRAExtendedResource)"
        assert scene.bind() == f"the API server dropped {dropped} of pod ns/p"
        assert (scene.special, scene.held) == ([], set())

    def test_in_the_oldest_version_requests_have_no_layer_exactly(self) -> None:
        scene = Scene(asking())

        class Old(Transport):
            def api_version(self, resource: Resource) -> str:
                return "resource.k8s.io/v1beta1" if resource == CLAIMS else super().api_version(resource)

        writer = Writer(Old(scene.api), scene.state, lambda: NOW)
        clashes = Clashes(lambda: None, lambda _pod, _note: None)
        scene.binder = Binder(scene.state, writer, solver(), deadline=4, clashes=clashes)
        assert scene.bind() == ""
        (made,) = scene.special
        assert made["apiVersion"] == "resource.k8s.io/v1beta1"
        assert made["spec"]["devices"]["requests"] == [
            {"name": "container-0-request-1", "deviceClassName": "gpu", "count": 1}
        ]


class TestOnce:
    """However often a bind is repeated, there is one special claim."""

    @pytest.mark.parametrize("fault", [Fault(lost=True), Fault(reply_lost=True)], ids=["lost", "reply lost"])
    @pytest.mark.parametrize("call", [CREATE, PROTECT, ALLOCATE, BIND])
    def test_a_call_whose_outcome_is_unknown(self, call: str, fault: Fault) -> None:
        scene = Scene(asking())
        scene.transport.script(call, fault)
        assert scene.bind() == ""
        assert [devices(each) for each in scene.special] == [["n/gpu-0"]]

    def test_told_but_not_heard_the_next_bind_goes_on(self) -> None:
        scene = Scene(asking())
        scene.transport.script(TELL, Fault(reply_lost=True))
        assert "outcome unknown" in scene.bind()
        assert scene.bind() == ""
        assert len(scene.special) == 1

    def test_repeated_calls_share_one(self) -> None:
        scene = Scene(asking())

        async def thrice() -> list[str]:
            return list(await asyncio.gather(*(scene._bind("n") for _ in range(3))))

        assert virtualtime.run(thrice()) == ["", "", ""]
        assert len(scene.special) == 1

    def test_a_claim_of_that_name_that_is_not_ours_is_left_alone(self) -> None:
        scene = Scene(asking())
        scene.bind()
        (name,) = [each["metadata"]["name"] for each in scene.special]
        other = Scene(asking(), claim(name))
        assert other.bind() == f"claim ns/{name} exists, and is not for the pod's extended resources"
        assert other.held == set()
        assert [each["metadata"]["name"] for each in virtualtime.run(other.api.list(CLAIMS)).items] == [name]


class TestUndo:
    @pytest.mark.parametrize("call", [PROTECT, ALLOCATE, TELL, BIND])
    def test_a_pod_that_does_not_get_there_leaves_none(self, call: str) -> None:
        scene = Scene(asking())
        scene.transport.script(call, Fault(refused=FORBIDDEN))
        assert "not allowed" in scene.bind()
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": None}, set())
        assert scene.bind("o") == ""

    def test_nor_does_one_that_is_deleted_meanwhile(self) -> None:
        scene = Scene(asking())

        async def delete() -> None:
            await scene.api.delete(PODS, ObjectKey("ns", "p"))

        scene.transport.script(BIND, Fault(before=delete))
        assert scene.bind() == "pod ns/p is gone"
        assert (scene.special, scene.held) == ([], set())

    def test_in_a_namespace_that_is_terminating_nothing_is_made(self) -> None:
        scene = Scene(asking())
        reason = "unable to create new content in namespace ns because it is being terminated"
        scene.transport.script(CREATE, Fault(refused=ApiError(403, "Forbidden", reason)))
        assert scene.bind().endswith(reason)
        assert (scene.special, scene.held) == ([], set())


def left_behind(scene: Scene) -> str:
    """A bind on n ends just before its Binding; what is left is a special claim on n."""
    scene.transport.script(BIND, *[Fault(lost=True)] * 9)
    assert "outcome unknown" in scene.bind("n")
    scene.new_process()
    (made,) = scene.special
    return str(made["metadata"]["uid"])


class TestLeftFromAnEarlierTry:
    def test_it_goes_on_where_it_suits(self) -> None:
        scene = Scene(asking("2"))
        uid = left_behind(scene)
        assert scene.filter() == {"n": "", "m": "", "o": ""}
        assert scene.bind("n") == ""
        assert [each["metadata"]["uid"] for each in scene.special] == [uid]
        assert writes(scene.transport.calls) == [BIND]

    def test_on_another_node_it_is_made_anew(self) -> None:
        scene = Scene(asking("2"))
        uid = left_behind(scene)
        assert scene.bind("o") == ""
        (made,) = scene.special
        assert made["metadata"]["uid"] != uid
        assert devices(made) == ["o/gpu-0", "o/gpu-1"]

    def test_where_a_plugin_serves_it_is_deleted_and_the_pods_status_cleared(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        assert scene.bind("m") == ""
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": "m"}, set())

    def test_what_it_holds_is_free_for_its_pod(self) -> None:
        """Another class serves the resource now, so it can't go on; there are just its own devices left."""
        scene = Scene(asking("2"))
        uid = left_behind(scene)
        newer = device_class("newer", extended=GPU)
        newer["metadata"]["creationTimestamp"] = "2026-02-02T00:00:00Z"
        virtualtime.run(scene.api.create(CLASSES, newer))
        assert scene.filter()["n"] == ""
        assert scene.bind("n") == ""
        (made,) = scene.special
        assert made["metadata"]["uid"] != uid
        assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "newer"

    def test_the_class_is_gone(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        virtualtime.run(scene.api.delete(CLASSES, ObjectKey("", "gpu")))
        reason = f"neither a device plugin nor a device class offers extended resource {GPU}"
        assert scene.filter() == {"n": reason, "m": "", "o": reason}
        assert scene.bind("m") == ""
        assert scene.special == []

    def test_it_was_made_and_no_more(self) -> None:
        scene = Scene(asking())
        scene.transport.script(PROTECT, *[Fault(lost=True)] * 9)
        scene.transport.script("get pods", *[Fault(lost=True)] * 9)
        assert scene.bind("n")
        scene.new_process()
        assert scene.bind("n") == ""
        assert len(scene.special) == 1

    def test_it_is_void(self) -> None:
        """Others hold its devices, and which came first is not known after a restart."""
        scene = Scene(asking("2"), claim("other"))
        scene.transport.script(BIND, *[Fault(lost=True)] * 9)
        scene.bind("n")
        status = claim("other", allocated=["n/gpu-0"], at="n", users=["q"])["status"]
        virtualtime.run(scene.api.patch_status(CLAIMS, ObjectKey("ns", "other"), {"status": status}))
        scene.new_process()
        assert scene.filter()["n"] == "not enough free devices for request container-0-request-1"
        assert scene.bind("o") == ""
        assert [devices(each) for each in scene.special] == [["o/gpu-0", "o/gpu-1"]]


def test_ours_are_told_from_those_of_other_schedulers_by_their_name() -> None:
    scene = Scene(asking())
    scene.bind()
    ours = parse_claim_object(scene.special[0])
    assert is_ours(ours, "p")
    assert not is_ours(replace(ours, claim=replace(ours.claim, name="p-extended-resources-x7b2k")), "p")


def test_the_name_of_a_pod_is_cut_to_fit() -> None:
    long = "a" * 226 + ".b"
    raw = asking(name=long)
    scene = Scene(raw)
    assert scene.bind("n", long) == ""
    (made,) = scene.special
    assert len(made["metadata"]["name"]) <= 253
    assert ".-" not in made["metadata"]["name"]


def test_who_holds_devices_in_a_special_claim_can_be_evicted_for_them() -> None:
    important = asking("2", name="important")
    important["spec"]["priority"] = 10
    scene = Scene(asking("2"), important)
    scene.bind("n")
    snapshot = scene.state.snapshot
    chosen = choose_victims(
        snapshot.pods[ObjectKey("ns", "important")], {"n": Victims(("uid-other",))}, snapshot, solver()
    )
    assert chosen["n"].uids == ("uid-other", "uid-p")


class TestSweep:
    """Special claims that nobody will use are deleted, once they are idle."""

    def sweep(self, scene: Scene, *, after: timedelta = IDLE) -> None:
        async def main() -> None:
            Sweep(scene.state, scene.binder, lambda: NOW + after).look()
            await asyncio.sleep(10)

        virtualtime.run(main())

    def test_a_pod_that_is_not_bound_any_more(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        self.sweep(scene)
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": None}, set())
        assert scene.bind("o") == ""

    def test_not_while_it_may_be_bound_soon(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        self.sweep(scene, after=IDLE - timedelta(seconds=1))
        assert len(scene.special) == 1

    def test_nor_when_it_is_used(self) -> None:
        scene = Scene(asking())
        scene.bind()
        self.sweep(scene)
        assert (len(scene.special), scene.held) == (1, {"n/gpu-0"})

    def test_nor_while_its_devices_get_ready(self) -> None:
        scene = Scene(asking())
        ready = {"bindingConditions": ["example.com/ready"], "bindingFailureConditions": ["example.com/broken"]}
        virtualtime.run(scene.api.create(NODES, node("x")))
        virtualtime.run(scene.api.create(SLICES, local_slice("x", 1, **ready)))
        assert scene.bind("x").startswith("waiting for example.com/ready")
        name = scene.special[0]["metadata"]["name"]
        assert set(scene.filter().values()) == {f"claim {name} waits until its devices are ready"}
        self.sweep(scene)
        assert len(scene.special) == 1

    def test_a_pod_that_is_gone(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        virtualtime.run(scene.api.delete(PODS, ObjectKey("ns", "p")))
        self.sweep(scene)
        assert (scene.special, scene.held) == ([], set())

    def test_a_post_that_landed_when_the_pod_had_gone_elsewhere(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        late = scene.special[0]
        assert scene.bind("m") == ""
        virtualtime.run(scene.api.create(CLAIMS, {**late, "metadata": {**late["metadata"], "finalizers": []}}))
        self.sweep(scene)
        assert (scene.special, scene.status()) == ([], {"nodeName": "m"})

    def test_a_running_pod_keeps_the_one_that_its_status_names(self) -> None:
        """Another one of ours, for other requests, has landed late."""
        scene = Scene(asking())
        scene.bind()
        (used,) = scene.special
        bound = scene.state.snapshot.pods[ObjectKey("ns", "p")]
        late = special_claim(bound, demand(bound, {GPU: "another"}).spec)
        virtualtime.run(scene.api.create(CLAIMS, {**used, **orjson.loads(late.raw)}))
        assert len(scene.special) == 2
        before = scene.status()
        self.sweep(scene)
        assert [each["metadata"]["uid"] for each in scene.special] == [used["metadata"]["uid"]]
        assert scene.status() == before

    def test_those_of_other_schedulers_are_theirs(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        (ours,) = scene.special
        metadata = {**ours["metadata"], "name": "p-extended-resources-x7b2k", "uid": "theirs"}
        other = Scene(asking(), {**ours, "metadata": metadata})
        self.sweep(other)
        assert len(other.special) == 1

    def test_not_while_the_cluster_is_not_known(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        scene.state.doubt(PODS, "nothing heard for 30 s")
        self.sweep(scene)
        assert len(scene.special) == 1

    def test_from_time_to_time(self) -> None:
        scene = Scene(asking())
        left_behind(scene)
        times = iter([NOW + IDLE - PERIOD / 2, NOW + IDLE, NOW + IDLE + PERIOD / 2])
        sweep = Sweep(scene.state, scene.binder, lambda: next(times))

        async def main() -> list[int]:
            left = []
            for _ in range(3):
                sweep.look()
                await asyncio.sleep(10)
                left.append(len((await scene.api.list(CLAIMS)).items))
            return left

        assert virtualtime.run(main()) == [1, 1, 0]
