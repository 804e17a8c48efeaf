"""Bind of pods of gangs: to the kept node only, and not once the gang is no longer ready."""

from extender.cluster.objects.claims import SPECIAL
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.binders import bind_error, binder_over
from tests.kit.clusters import claim
from tests.kit.servers.memory import Fault, Transport


async def planned(names: str = "ab") -> Scene:
    scene = Scene(*nodes(names), *members("x", 2))
    await scene.schedule(["x0", "x1"])
    await scene.turns()
    return scene


async def test_a_pod_is_not_bound_alone_if_what_is_kept_for_its_gang_ends_before_the_binding() -> None:
    scene = await planned()
    transport = Transport(scene.cluster.api)

    async def end() -> None:
        for name in ("x0", "x1"):
            await scene.nominator.end(scene.known(name), "not all pods of the group were bound in time")

    transport.script("bind pods", Fault(before=end))
    binder = binder_over(transport, scene.cluster.state, by=scene.solver)
    error = await bind_error(binder, "x0", scene.known("x0").kept.node)
    assert error == "pod ns/x0: waiting for devices for 2 pods of group x together"
    assert scene.bound() == {}
    assert not scene.cluster.state.snapshot.usage.pools


async def test_a_pod_is_not_bound_alone_if_what_is_kept_for_another_one_ends_while_its_claims_are_written() -> None:
    scene = await planned()
    transport = Transport(scene.cluster.api)

    async def end() -> None:
        await scene.nominator.end(scene.known("x1"), "the node is gone")

    transport.script("update_status resourceclaims", Fault(before=end))
    binder = binder_over(transport, scene.cluster.state, by=scene.solver)
    error = await bind_error(binder, "x0", scene.known("x0").kept.node)
    assert error == "pod ns/x0: waiting for devices for 2 pods of group x together"
    assert scene.bound() == {}


async def test_a_pod_is_bound_to_its_kept_node_only() -> None:
    scene = await planned("abc")
    kept = scene.known("x0").kept.node
    other = ({"a", "b", "c"} - {kept, scene.known("x1").kept.node}).pop()
    assert await scene.bind("x0", other) == f"node {other}: devices are kept for the pod on node {kept}"
    assert await scene.bind("x0", kept) == ""


async def test_the_claim_for_its_extended_resources_is_its_own_before_its_status_names_it() -> None:
    scene = await planned()
    kept = scene.known("x0").kept.node
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x0", "uid": "uid-x0", "controller": True}
    special = {"annotations": {SPECIAL: "true"}, "ownerReferences": [owner]}
    raw = claim("made", allocated=[f"{kept}/gpu-0"], at=kept, users=["x0"], metadata=special)
    await scene.cluster.api.create(CLAIMS, raw)
    await scene.cluster.api.patch_status(CLAIMS, ObjectKey("ns", "made"), {"status": raw["status"]})
    assert scene.reason("x1") == ""
