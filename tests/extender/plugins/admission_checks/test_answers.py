"""What admission checks answer: whether there are devices for all pods of a job, and why not."""

from typing import Any

import pytest

from tests.extender.plugins.admission_checks.scenes import (
    BACK_SECONDS,
    KEEP_SECONDS,
    RESERVED,
    Scene,
    check,
    flavor,
    on_node,
    pods,
    site,
    state,
    template,
    workload,
)
from tests.kit.clusters import Object, claim, claim_template, device_class, node, pod, request
from tests.kit.objects.quotas import limited, quota

SINCE = f"waiting for devices since {RESERVED}: "
SHARED = [claim("shared"), claim("used", allocated=["a/gpu-0"], at="a", users=["p"]), pod("p", "used", on="a")]
EXTENDED = device_class(selectors=['device.driver == "gpu.example.com"'], extended="example.com/gpu")


def tainted(name: str, *effects: str, **spec: Any) -> Object:
    """A node with a taint of each effect."""
    return {**node(name), "spec": {"taints": [{"key": "k", "effect": each} for each in effects], **spec}}


def offering(name: str, resources: dict[str, str]) -> Object:
    """A node with resources of device plugins."""
    return {**node(name), "status": {"allocatable": {"cpu": "8", **resources}}}


CASES: dict[str, tuple[list[Object], tuple[Object, ...], str]] = {
    "all pods fit": ([], (pods(count=4),), ""),
    "one pod": ([], (pods(count=1),), ""),
    "too many pods": (
        [],
        (pods(count=5),),
        "4 of 5 pods would get them; pod set main: 2 no free device for request gpu",
    ),
    "several pod sets fit": ([], (pods("head"), pods("rest", 3)), ""),
    "several pod sets": (
        [],
        (pods("head"), pods("rest", 4)),
        "4 of 5 pods would get them; pod set rest: 2 no free device for request gpu",
    ),
    "a claim by name for all pods": (SHARED, (pods(count=8, of=template(claim="shared")),), ""),
    "a template that does not exist": (
        [],
        (pods(of=template("other")),),
        "0 of 1 pod would get them; pod set main: claim template other does not exist",
    ),
    "extended resources": ([EXTENDED], (pods(count=2, of=template(resources={"example.com/gpu": "2"})),), ""),
    "too many extended resources": (
        [EXTENDED],
        (pods(count=3, of=template(resources={"example.com/gpu": "2"})),),
        "2 of 3 pods would get them; pod set main: 2 no free device for example.com/gpu of container c",
    ),
    "resources of device plugins": (
        [offering("a", {"example.com/nic": "1"}), offering("b", {"example.com/nic": "2"})],
        (pods(count=4, of=template("gpu", resources={"example.com/nic": "1"})),),
        "3 of 4 pods would get them; pod set main: 2 Insufficient example.com/nic",
    ),
    "devices that do not exist": (
        [claim_template("odd", request(selectors=["false"]))],
        (pods(of=template("odd")),),
        "0 of 1 pod would get them; pod set main: 2 no device matches request gpu",
    ),
    "a device quota": (
        [quota(limited(devices=1))],
        (pods(count=2),),
        "1 of 2 pods would get them; pod set main: device quota gold: limit gpu allows 1 device",
    ),
    "a node by the author": (
        [],
        (pods(count=3, of=on_node(template("gpu"), "a")),),
        "2 of 3 pods would get them; pod set main: 1 no free device for request gpu",
    ),
    "a node by the author that kubelet admits pods to": (
        [tainted("a", "NoSchedule", "PreferNoSchedule", unschedulable=True)],
        (pods(count=2, of=on_node(template("gpu"), "a")), pods("rest", 2)),
        "",
    ),
    "a node by the author with a taint that kubelet heeds": (
        [tainted("a", "NoExecute")],
        (pods(of=on_node(template("gpu"), "a")),),
        "0 of 1 pod would get them; pod set main: 1 untolerated taint k:NoExecute of the node",
    ),
    "a node by the author that does not exist": (
        [],
        (pods(of=on_node(template("gpu"), "gone")),),
        "0 of 1 pod would get them; pod set main: node gone does not exist",
    ),
    "a claim by name, and a node by the author": (
        SHARED,
        (pods(count=8, of=on_node(template(claim="shared"), "b")),),
        "",
    ),
    "an extended resource on a node by the author": (
        [EXTENDED],
        (pods(of=on_node(template(resources={"example.com/gpu": "1"}), "a")),),
        (
            "0 of 1 pod would get them; pod set main: the pod has node a, and kubelet starts it without "
            "example.com/gpu: kubelet does not wait for devices of a device class; remove spec.nodeName, so that a "
            "scheduler allocates them"
        ),
    ),
    "a template that is no pod": (
        [],
        (pods(of={"spec": {"priority": "high"}}),),
        'the template of its pods cannot be read: Pod j-main: spec.priority: "high" is not a whole number of 64 bits',
    ),
}


@pytest.mark.parametrize(("objects", "pod_sets", "reason"), CASES.values(), ids=CASES)
async def test_a_check_is_ready_if_there_are_devices_for_all_pods(
    objects: list[Object], pod_sets: tuple[Object, ...], reason: str
) -> None:
    scene = Scene(*site(), *objects, workload("j", *pod_sets))
    await scene.turns()
    found, message = await scene.told("j")
    assert (found, message.removeprefix(SINCE) if reason else "") == ("Pending" if reason else "Ready", reason)


def odd_time() -> Object:
    job = workload("odd")
    job["status"]["conditions"][0]["lastTransitionTime"] = "yesterday"
    return job


@pytest.mark.parametrize("odd", [odd_time(), workload("odd", checks=[state(), state(name="")])], ids=["time", "name"])
async def test_a_job_that_cannot_be_read_keeps_no_other_one_from_its_answer(odd: Object) -> None:
    scene = Scene(*site(0), odd, workload("j"))
    await scene.turns()
    assert (await scene.told("j"))[0] == "Pending"
    assert [key.name for _, key in scene.cluster.state.snapshot.problems] == ["odd"]


async def test_ready_names_the_pods_and_labels_them() -> None:
    plain = pods("driver", of=template())
    scene = Scene(*site(), workload("j", plain, pods("work", 2)))
    await scene.turns()
    assert await scene.entry("j") == {
        "name": "devices",
        "state": "Ready",
        "message": "there are devices for its 2 pods together; other jobs leave them to it for 60 s",
        "lastTransitionTime": "2026-03-01T12:00:02Z",
        "podSetUpdates": [{"name": "work", "labels": {"dra-extender.dev/admitted-for": "uid-j.1"}}],
    }


async def test_a_label_of_the_author_stays() -> None:
    labeled = template("gpu", labels={"dra-extender.dev/admitted-for": "me"})
    scene = Scene(*site(), workload("j", pods(of=labeled)))
    await scene.turns()
    entry = await scene.entry("j")
    assert (entry["state"], "podSetUpdates" in entry) == ("Ready", False)


@pytest.mark.parametrize("old", [{}, {"podSetUpdates": [{"name": "main", "labels": {"by": "hand"}}]}])
async def test_a_job_that_is_ready_anew_keeps_its_updates(old: Object) -> None:
    """Somebody has made it ready by hand. Kueue refuses other updates of an entry that stays ready."""
    scene = Scene(*site(), workload("j", checks=[state(state="Ready", **old), state("other")]))
    await scene.turns(1, KEEP_SECONDS)
    await scene.turns()
    entry = await scene.entry("j")
    assert "there are devices for its pod" in entry["message"]
    assert entry.get("podSetUpdates") == old.get("podSetUpdates")


async def test_a_job_without_devices_is_ready_at_once_and_for_good() -> None:
    scene = Scene(*site(0), workload("j", pods(count=100_000, of=template())))
    await scene.turns()
    assert await scene.told("j") == ("Ready", "no pod needs devices")
    before = await scene.raw("j")
    await scene.turns(5, 100)
    assert await scene.raw("j") == before


async def test_partial_admission_counts_what_is_admitted() -> None:
    assigned = [{"name": "main", "count": 4}]
    scene = Scene(*site(), workload("j", pods(count=10), assigned=assigned))
    await scene.turns()
    assert (await scene.told("j"))[0] == "Ready"


@pytest.mark.parametrize(("label", "expected"), [("east", "Ready"), ("west", "Pending")])
async def test_pods_go_where_flavors_let_them(label: str, expected: str) -> None:
    there = [flavor("f", nodeLabels={"zone": label}), node("a", labels={"zone": "east"})]
    assigned = [{"name": "main", "count": 2, "flavors": {"gpus": "f", "cpu": "f"}}]
    scene = Scene(*site(), *there, workload("j", pods(count=2), assigned=assigned))
    await scene.turns()
    assert (await scene.told("j"))[0] == expected


async def test_flavors_bring_tolerations() -> None:
    tainted = {**node("a"), "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
    there = [flavor("f", tolerations=[{"key": "gpu", "operator": "Exists"}]), tainted]
    assigned = [{"name": "main", "count": 4, "flavors": {"gpus": "f"}}]
    jobs = [workload("j", pods(count=4), assigned=assigned), workload("k", pods(count=3))]
    scene = Scene(*site(), *there, *jobs)
    await scene.turns()
    assert [(await scene.told(name))[0] for name in "jk"] == ["Ready", "Pending"]


async def test_other_checks_say_where_pods_go() -> None:
    other = state("provisioning", "Ready", podSetUpdates=[{"name": "main", "nodeSelector": {"zone": "west"}}])
    scene = Scene(*site(), workload("j", pods(), checks=[state(), other]))
    await scene.turns()
    assert "2 node does not match spec.nodeSelector zone=west" in (await scene.told("j"))[1]
    assert await scene.entry("j", "provisioning") == other


@pytest.mark.parametrize(
    "job",
    [
        workload("j", conditions=()),
        workload("j", conditions=("QuotaReserved", "Finished")),
        workload("j", conditions=("QuotaReserved", "Evicted")),
        workload("j", active=False),
        workload("j", checks=[state("other")]),
        workload("j", checks=[state(state="Retry")]),
        workload("j", checks=[state(state="Rejected")]),
        workload("j", checks=[state(), state("second", "Retry", "by hand")]),
        workload("j", checks=[state("second", "Rejected", "by hand"), state()]),
        workload("j", pods(count=5), conditions=("QuotaReserved", "Admitted")),
    ],
    ids=[
        "no quota",
        "finished",
        "evicted",
        "inactive",
        "a check of others",
        "gives back",
        "rejected",
        "gives back by a second check",
        "rejected by a second check",
        "runs",
    ],
)
async def test_others_are_left_alone(job: Object) -> None:
    scene = Scene(*site(), check("second"), check("other", "example.com/other"), job)
    before = await scene.raw("j")
    await scene.turns()
    await scene.turns(2, BACK_SECONDS)
    assert await scene.raw("j") == before
