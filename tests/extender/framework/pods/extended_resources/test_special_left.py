"""Special claims that an earlier try has left, and those that nobody will use."""

from datetime import timedelta

import orjson

from extender.framework.pods.extended_resources import demand, special_claim
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from extender.plugins.orphans import IDLE, PERIOD, OrphanCollector
from extender.tools.faults import Faults
from tests.extender.framework.pods.extended_resources.scenes import BIND, GPU, PROTECT, Scene, left_behind, pod_for
from tests.kit import virtualtime
from tests.kit.binders import devices_of
from tests.kit.clusters import claim, device_class, local_slice, node
from tests.kit.servers.memory import NOW, Fault, writes


class TestLeftFromAnEarlierTry:
    def test_it_goes_on_where_it_suits(self) -> None:
        scene = Scene(pod_for("2"))
        uid = left_behind(scene)
        assert scene.filter() == {"n": "", "m": "", "o": ""}
        assert scene.bind("n") == ""
        assert [each["metadata"]["uid"] for each in scene.special] == [uid]
        assert writes(scene.transport.calls) == [BIND]

    def test_on_another_node_it_is_made_anew(self) -> None:
        scene = Scene(pod_for("2"))
        uid = left_behind(scene)
        assert scene.bind("o") == ""
        (made,) = scene.special
        assert made["metadata"]["uid"] != uid
        assert devices_of(made) == ["o/gpu-0", "o/gpu-1"]

    def test_where_a_plugin_serves_it_is_deleted_and_the_pods_status_cleared(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        assert scene.bind("m") == ""
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": "m"}, set())

    def test_what_it_holds_is_free_for_its_pod(self) -> None:
        """Another class serves the resource now, so it can't go on; there are just its own devices left."""
        scene = Scene(pod_for("2"))
        uid = left_behind(scene)
        newer = device_class("newer", extended=GPU)
        newer["metadata"]["creationTimestamp"] = "2026-02-02T00:00:00Z"
        virtualtime.run(scene.api.create(CLASSES, newer))
        assert scene.filter()["n"] == ""
        assert scene.bind("n") == ""
        (made,) = scene.special
        assert made["metadata"]["uid"] != uid
        assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "newer"

    def test_a_special_claim_goes_when_its_class_is_gone(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        virtualtime.run(scene.api.delete(CLASSES, ObjectKey("", "gpu")))
        reason = f"neither a device plugin nor a device class offers extended resource {GPU}"
        assert scene.filter() == {"n": reason, "m": "", "o": reason}
        assert scene.bind("m") == ""
        assert scene.special == []

    def test_it_was_made_and_no_more(self) -> None:
        scene = Scene(pod_for())
        scene.transport.script(PROTECT, *[Fault(lost=True)] * 9)
        scene.transport.script("get pods", *[Fault(lost=True)] * 9)
        assert scene.bind("n")
        scene.new_process()
        assert scene.bind("n") == ""
        assert len(scene.special) == 1

    def test_a_special_claim_whose_devices_others_hold_is_void(self) -> None:
        """Others hold its devices, and which came first is not known after a restart."""
        scene = Scene(pod_for("2"), claim("other"))
        scene.transport.script(BIND, *[Fault(lost=True)] * 9)
        scene.bind("n")
        status = claim("other", allocated=["n/gpu-0"], at="n", users=["q"])["status"]
        virtualtime.run(scene.api.patch_status(CLAIMS, ObjectKey("ns", "other"), {"status": status}))
        scene.new_process()
        assert scene.filter()["n"] == f"not enough free devices for {GPU} of container c"
        assert scene.bind("o") == ""
        assert [devices_of(each) for each in scene.special] == [["o/gpu-0", "o/gpu-1"]]


class TestSweep:
    """Special claims that nobody will use are deleted, once they are idle."""

    def sweep(self, scene: Scene, *, after: timedelta = IDLE) -> None:
        async def main() -> None:
            OrphanCollector(scene.state, scene.binder, lambda: NOW + after, Faults()).look()
            await virtualtime.elapse(10)

        virtualtime.run(main())

    def test_a_pod_that_is_not_bound_any_more(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        self.sweep(scene)
        assert (scene.special, scene.status(), scene.held) == ([], {"nodeName": None}, set())
        assert scene.bind("o") == ""

    def test_not_while_it_may_be_bound_soon(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        self.sweep(scene, after=IDLE - timedelta(seconds=1))
        assert len(scene.special) == 1

    def test_nor_when_it_is_used(self) -> None:
        scene = Scene(pod_for())
        scene.bind()
        self.sweep(scene)
        assert (len(scene.special), scene.held) == (1, {"n/gpu-0"})

    def test_nor_while_its_devices_get_ready(self) -> None:
        scene = Scene(pod_for())
        ready = {"bindingConditions": ["example.com/ready"], "bindingFailureConditions": ["example.com/broken"]}
        virtualtime.run(scene.api.create(NODES, node("x")))
        virtualtime.run(scene.api.create(SLICES, local_slice("x", 1, **ready)))
        assert scene.bind("x").startswith("waiting for example.com/ready")
        name = scene.special[0]["metadata"]["name"]
        assert set(scene.filter().values()) == {f"claim {name} waits until its devices are ready"}
        self.sweep(scene)
        assert len(scene.special) == 1

    def test_a_pod_that_is_gone(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        virtualtime.run(scene.api.delete(PODS, ObjectKey("ns", "p")))
        self.sweep(scene)
        assert (scene.special, scene.held) == ([], set())

    def test_a_post_that_landed_when_the_pod_had_gone_elsewhere(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        late = scene.special[0]
        assert scene.bind("m") == ""
        virtualtime.run(scene.api.create(CLAIMS, {**late, "metadata": {**late["metadata"], "finalizers": []}}))
        self.sweep(scene)
        assert (scene.special, scene.status()) == ([], {"nodeName": "m"})

    def test_a_running_pod_keeps_the_one_that_its_status_names(self) -> None:
        """Another one of ours, for other requests, has landed late."""
        scene = Scene(pod_for())
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
        scene = Scene(pod_for())
        left_behind(scene)
        (ours,) = scene.special
        metadata = {**ours["metadata"], "name": "p-extended-resources-x7b2k", "uid": "theirs"}
        other = Scene(pod_for(), {**ours, "metadata": metadata})
        self.sweep(other)
        assert len(other.special) == 1

    def test_not_while_the_cluster_is_not_known(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        scene.state.doubt(PODS, "nothing heard for 30 s")
        self.sweep(scene)
        assert len(scene.special) == 1

    def test_from_time_to_time(self) -> None:
        scene = Scene(pod_for())
        left_behind(scene)
        times = iter([NOW + IDLE - PERIOD / 2, NOW + IDLE, NOW + IDLE + PERIOD / 2])
        sweep = OrphanCollector(scene.state, scene.binder, lambda: next(times), Faults())

        async def main() -> list[int]:
            left = []
            for _ in range(3):
                sweep.look()
                await virtualtime.elapse(10)
                left.append(len((await scene.api.list(CLAIMS)).items))
            return left

        assert virtualtime.run(main()) == [1, 1, 0]
