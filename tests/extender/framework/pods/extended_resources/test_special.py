"""Extended resources at work: device plugin or special claim, node by node; and the special claim's life (KEP-5004)."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.writes.events import Note
from extender.framework.bind_errors import REFUSALS
from extender.framework.passed_over_nodes import OVER_QUOTA
from extender.framework.pods.extended_resources import is_ours
from extender.framework.victims import Victims
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, CLASSES, PODS, Resource
from extender.plugins.preemption.plugin import choose_victims
from tests.extender.framework.pods.extended_resources.scenes import (
    ALLOCATE,
    BIND,
    CREATE,
    EVERYTHING,
    FORBIDDEN,
    GPU,
    PROTECT,
    TELL,
    Scene,
    pod_for,
)
from tests.kit import virtualtime
from tests.kit.binders import bind_error, binder_over, devices_of
from tests.kit.clusters import claim, local_slice, node, pod, solver
from tests.kit.servers.memory import Fault, Transport, writes


class TestPerNode:
    def test_a_device_plugin_serves_where_there_is_one_and_devices_elsewhere(self) -> None:
        scene = Scene(pod_for("2"), claim("other", allocated=["o/gpu-0"], at="o", users=["q"]))
        missing = f"not enough free devices for {GPU} of container c"
        assert scene.filter() == {"n": "", "m": "", "o": missing}

    def test_a_plugin_whose_devices_are_all_gone_is_none(self) -> None:
        scene = Scene(pod_for(), node("z", allocatable={GPU: "0"}))
        assert scene.filter(nodes=["z"]) == {"z": f"no device for {GPU} of container c"}

    def test_a_resource_that_no_plugin_and_no_class_offers_fits_nowhere(self) -> None:
        scene = Scene(pod_for("1", **{"example.com/nic": "1"}))
        reason = "neither a device plugin nor a device class offers extended resource example.com/nic"
        assert scene.filter() == {"n": reason, "m": reason, "o": reason}

    def test_what_no_class_serves_needs_a_plugin(self) -> None:
        scene = Scene(pod("p", resources={"example.com/nic": "1"}), node("z", allocatable={"example.com/nic": "1"}))
        reason = "neither a device plugin nor a device class offers extended resource example.com/nic"
        assert scene.filter(nodes=["n", "z"]) == {"n": reason, "z": ""}
        assert scene.bind("n") == f"node n: {reason}"

    def test_a_claim_and_a_resource_that_no_class_serves(self) -> None:
        nic = node("z", allocatable={"example.com/nic": "1"})
        scene = Scene(claim("a"), pod("p", "a", resources={"example.com/nic": "1"}), nic, local_slice("z"))
        reason = "neither a device plugin nor a device class offers extended resource example.com/nic"
        assert scene.filter(nodes=["n", "z"]) == {"n": reason, "z": ""}

    def test_nothing_is_ours_where_the_feature_is_off(self) -> None:
        scene = Scene(claim("a"), pod_for("9", "a"))
        assert set(scene.filter().values()) == {
            f"not enough free devices for {GPU} of container c",
            "no device for request gpu",
        }
        off = replace(EVERYTHING, extended_resource=False)
        assert scene.filter(features=off) == {"n": "", "m": "no device for request gpu", "o": ""}

    def test_but_no_pod_is_bound_where_nobody_offers_what_it_needs(self) -> None:
        scene = Scene(pod_for())
        virtualtime.run(scene.api.delete(CLASSES, ObjectKey("", "gpu")))
        reason = f"node n: neither a device plugin nor a device class offers extended resource {GPU}"
        assert scene.bind("n") == reason
        assert scene.bind("m") == ""

    def test_a_device_class_is_asked_for_by_its_implicit_resource_name(self) -> None:
        implicit = "deviceclass.resource.kubernetes.io/gpu"
        scene = Scene(pod("p", resources={implicit: "1"}))
        assert scene.filter() == {"n": "", "m": f"no device for {implicit} of container c", "o": ""}

    def test_of_a_class_that_does_not_exist(self) -> None:
        scene = Scene(pod("p", resources={"deviceclass.resource.kubernetes.io/none": "1"}))
        assert set(scene.filter().values()) == {"device class none does not exist"}

    def test_a_count_that_no_claim_can_hold_needs_a_plugin(self) -> None:
        scene = Scene(pod_for("1k"))
        reason = "extended resources need 1000 devices, a claim can hold 32"
        assert scene.filter() == {"n": reason, "m": "", "o": reason}

    def test_with_claims_of_its_own_it_is_one_problem(self) -> None:
        scene = Scene(claim("a"), claim("b"), pod_for("1", "a"), pod_for("1", "b", name="q"))
        assert scene.bind("n") == ""
        taken = [f"n/gpu-{index}" for index in range(2)]
        assert sorted(scene.held) == taken
        assert scene.filter("q")["n"] == "no free device for request gpu"


class TestBind:
    def test_the_special_claim_is_made_allocated_reserved_and_named_in_the_pods_status(self) -> None:
        scene = Scene(pod_for("2"))
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
        assert devices_of(made) == ["n/gpu-0", "n/gpu-1"]
        assert [user["name"] for user in made["status"]["reservedFor"]] == ["p"]
        mapping = {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-1"}
        assert scene.status() == {
            "nodeName": "n",
            "resourceClaimName": made["metadata"]["name"],
            "requestMappings": [mapping],
        }
        assert not scene.state.snapshot.assumed

    def test_where_a_device_plugin_serves_there_is_none(self) -> None:
        scene = Scene(pod_for())
        assert scene.bind("m") == ""
        assert (scene.special, scene.status()) == ([], {"nodeName": "m"})
        assert writes(scene.transport.calls) == [BIND]

    def test_its_devices_are_taken_from_the_moment_of_the_decision(self) -> None:
        scene = Scene(pod_for("2"), pod_for("1", name="q"))
        scene.transport.script(CREATE, Fault(seconds=1))

        async def both() -> list[str]:
            first = asyncio.create_task(bind_error(scene.binder, "p", "n"))
            await virtualtime.elapse(0.5)
            return [await bind_error(scene.binder, "q", "n"), await first]

        assert virtualtime.run(both()) == [f"node n: no free device for {GPU} of container c", ""]

    def test_a_pod_of_two_claims_gets_all_or_nothing(self) -> None:
        scene = Scene(claim("a"), pod_for("1", "a"))
        scene.transport.script(CREATE, Fault(refused=FORBIDDEN))
        (answer,) = [scene.bind()]
        assert answer.endswith("not allowed")
        assert (scene.special, scene.held) == ([], set())

    def test_the_api_server_drops_the_pods_status(self) -> None:
        scene = Scene(pod_for())

        def without(reply: RawObject) -> RawObject:
            reply["status"].pop("extendedResourceClaimStatus")
            return reply

        scene.transport.script(TELL, Fault(reply=without))
        dropped = "status.extendedResourceClaimStatus (feature gate DRAExtendedResource)"
        assert scene.bind() == f"the API server dropped {dropped} of pod ns/p"
        assert (scene.special, scene.held) == ([], set())

    def test_in_the_oldest_version_requests_have_no_layer_exactly(self) -> None:
        scene = Scene(pod_for())

        class Old(Transport):
            def api_version(self, resource: Resource) -> str:
                return "resource.k8s.io/v1beta1" if resource == CLAIMS else super().api_version(resource)

        scene.binder = binder_over(Old(scene.api), scene.state)
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
        scene = Scene(pod_for())
        scene.transport.script(call, fault)
        assert scene.bind() == ""
        assert [devices_of(each) for each in scene.special] == [["n/gpu-0"]]

    @pytest.mark.parametrize("call", [CREATE, PROTECT, ALLOCATE])
    def test_an_error_that_nobody_foresees_leaves_nothing_in_flight(self, call: str) -> None:
        scene = Scene(pod_for())

        def fail(_: RawObject) -> RawObject:
            raise RuntimeError("oops")

        scene.transport.script(call, Fault(reply=fail))
        with suppress(RuntimeError):
            scene.bind()
        assert not scene.state.snapshot.assumed
        assert scene.bind() == ""
        assert [devices_of(each) for each in scene.special] == [["n/gpu-0"]]

    def test_told_but_not_heard_the_next_bind_goes_on(self) -> None:
        scene = Scene(pod_for())
        scene.transport.script(TELL, Fault(reply_lost=True))
        assert "outcome unknown" in scene.bind()
        assert scene.bind() == ""
        assert len(scene.special) == 1

    def test_repeated_calls_share_one(self) -> None:
        scene = Scene(pod_for())

        async def thrice() -> list[str]:
            return list(await asyncio.gather(*(bind_error(scene.binder, "p", "n") for _ in range(3))))

        assert virtualtime.run(thrice()) == ["", "", ""]
        assert len(scene.special) == 1

    def test_a_claim_of_that_name_that_is_not_ours_is_left_alone(self) -> None:
        scene = Scene(pod_for())
        scene.bind()
        (name,) = [each["metadata"]["name"] for each in scene.special]
        other = Scene(pod_for(), claim(name))
        assert other.bind() == f"claim ns/{name} exists, and is not for the pod's extended resources"
        assert other.held == set()
        assert [each["metadata"]["name"] for each in virtualtime.run(other.api.list(CLAIMS)).items] == [name]


class TestUndo:
    @pytest.mark.parametrize("call", [PROTECT, ALLOCATE, TELL, BIND])
    def test_a_pod_that_does_not_get_there_leaves_none(self, call: str) -> None:
        scene = Scene(pod_for())
        scene.transport.script(call, Fault(refused=FORBIDDEN))
        assert "not allowed" in scene.bind()
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": None}, set())
        assert scene.bind("o") == ""

    def test_nor_does_one_that_is_deleted_meanwhile(self) -> None:
        scene = Scene(pod_for())

        async def delete() -> None:
            await scene.api.delete(PODS, ObjectKey("ns", "p"))

        scene.transport.script(BIND, Fault(before=delete))
        assert scene.bind() == "pod ns/p is gone"
        assert (scene.special, scene.held) == ([], set())

    def test_in_a_namespace_that_is_terminating_nothing_is_made(self) -> None:
        scene = Scene(pod_for())
        reason = "unable to create new content in namespace ns because it is being terminated"
        scene.transport.script(CREATE, Fault(refused=ApiError(403, "Forbidden", reason)))
        assert scene.bind().endswith(reason)
        assert (scene.special, scene.held) == ([], set())


def test_ours_are_told_from_those_of_other_schedulers_by_their_name() -> None:
    scene = Scene(pod_for())
    scene.bind()
    ours = parse_claim_object(scene.special[0])
    assert is_ours(ours, "p")
    assert not is_ours(replace(ours, claim=replace(ours.claim, name="p-extended-resources-x7b2k")), "p")


def test_the_name_of_a_pod_is_cut_to_fit() -> None:
    long = "a" * 226 + ".b"
    raw = pod_for(name=long)
    scene = Scene(raw)
    assert scene.bind("n", long) == ""
    (made,) = scene.special
    assert len(made["metadata"]["name"]) <= 253
    assert ".-" not in made["metadata"]["name"]


def test_who_holds_devices_in_a_special_claim_can_be_evicted_for_them() -> None:
    important = pod_for("2", name="important")
    important["spec"]["priority"] = 10
    scene = Scene(pod_for("2"), important)
    scene.bind("n")
    snapshot = scene.state.snapshot
    chosen = choose_victims(
        snapshot.pods[ObjectKey("ns", "important")], {"n": Victims(("uid-other",))}, snapshot, solver()
    )
    assert chosen["n"].uids == ("uid-other", "uid-p")


class TestQuota:
    def test_a_node_where_quota_refuses_the_claim_is_passed_over_while_another_suits(self) -> None:
        scene = Scene(pod_for(), pod_for(name="q"))
        assert scene.filter() == {"n": "", "m": "", "o": ""}
        scene.transport.script(CREATE, Fault(refused=ApiError(403, "Forbidden", "p is forbidden: exceeded quota: gpu")))
        scene.bind("n")
        assert scene.filter() == {"n": OVER_QUOTA.in_words(), "m": "", "o": ""}
        assert scene.filter(nodes=["n"]) == {"n": ""}, "no other node suits"
        assert not scene.filter("q")["n"], "another pod"

    def test_such_a_bind_is_refused_so_that_nothing_is_kept_for_the_pod_for_long(self) -> None:
        scene = Scene(pod_for())
        scene.transport.script(CREATE, Fault(refused=ApiError(403, "Forbidden", "p is forbidden: exceeded quota: gpu")))
        with pytest.raises(REFUSALS):
            virtualtime.run(scene.binder.bind(ObjectKey("ns", "p"), "uid-p", "n"))

    def test_a_special_claim_that_quota_refuses_leaves_nothing_behind_and_tells_an_event(self) -> None:
        scene = Scene(claim("a"), pod_for("1", "a"))
        message = (
            'resourceclaims.resource.k8s.io "p" is forbidden: exceeded quota: gpu, requested: 1, used: 8, limited: 8'
        )
        scene.transport.script(CREATE, Fault(refused=ApiError(403, "Forbidden", message)))
        told: list[Note] = []
        scene.binder = binder_over(scene.transport, scene.state, tell=lambda _pod, note: told.append(note))
        error = scene.bind()
        assert error.startswith("claim ns/p-extended-resources-")
        assert error.endswith(f" is not made: {message}")
        assert [(note.reason, note.text, note.action) for note in told] == [("QuotaExceeded", error, "Binding")]
        assert (scene.held, scene.special, scene.status()) == (set(), [], {"nodeName": None})
        assert not scene.state.snapshot.assumed
        assert scene.bind() == ""
