"""NodeReady: a new node is complete when all that its drivers are expected to publish is there."""

from datetime import timedelta
from typing import Any

import pytest

from extender.autoscaler.readiness import DaemonSetReader, Expectations, node_readiness
from extender.autoscaler.simulated_cluster import World
from extender.kube.api import Api, ApiError, Listing
from extender.kube.resources import DAEMON_SETS
from tests.extender.autoscaler.scenes import GROUP, daemon_set, expectations, machine, made_up, node_template, world_of
from tests.kit.clusters import DRIVER, Cluster, Object, claim_template, local_slice, network_slice

OTHER = "nic.example.com"


def readiness(world: World, expected: Expectations | None = None, name: str = "n") -> str:
    """Why the node is not ready; empty if it is."""
    found = node_readiness(name, world, expected or expectations())
    assert found.ready is not bool(found.reason)
    return found.reason


def missing(driver: str, source: str) -> str:
    return f"driver {driver} has published nothing for the node yet ({source})"


# --- what is published --------------------------------------------------------------------------------------


def publishing(name: str) -> Object:
    raw = local_slice(name)
    raw["spec"]["pool"]["resourceSliceCount"] = 2
    return raw


def renewing(name: str) -> tuple[Object, Object]:
    old, new = publishing(name), local_slice("other")
    new["spec"] |= {"nodeName": "other"}
    new["spec"]["pool"] = {"name": name, "generation": 2, "resourceSliceCount": 2}
    return old, new


NIC = {"name": "nic", "labels": {GROUP: "g"}, "slices": [{"driver": OTHER, "devices": [{"name": "n"}]}]}
READY: dict[str, tuple[tuple[Object, ...], tuple[Object, ...], str]] = {
    "all that is expected": ((machine("n", "g"), local_slice("n")), (node_template("g"),), ""),
    "a template without slices": ((machine("n", "g"),), ({**NIC, "slices": []},), ""),
    "nothing yet": ((machine("n", "g"),), (node_template("g"),), missing(DRIVER, "template g")),
    "one driver of two": (
        (machine("n", "g"), local_slice("n")),
        (node_template("g"), NIC),
        missing(OTHER, "template nic"),
    ),
    "one slice of two": (
        (machine("n", "g"), publishing("n")),
        (node_template("g"),),
        f"pool {DRIVER}/n: 1 of 2 slices are there",
    ),
    "one slice of two, of a driver that was not expected": (
        (machine("n", "g"), publishing("n")),
        (),
        f"pool {DRIVER}/n: 1 of 2 slices are there",
    ),
    "one slice of two, which are being replaced": (
        (machine("n", "g"), *renewing("n")),
        (node_template("g"),),
        f"pool {DRIVER}/n: slices of the newest generation are missing",
    ),
    "devices of the network do not count": (
        (machine("n", "g"), network_slice("net")),
        (node_template("g"),),
        missing(DRIVER, "template g"),
    ),
    "not there": ((), (node_template("g"),), "node not yet known"),
}


@pytest.mark.parametrize(("objects", "templates", "reason"), READY.values(), ids=READY)
def test_a_node_is_ready_when_all_is_there(
    objects: tuple[Object, ...], templates: tuple[Object, ...], reason: str
) -> None:
    assert readiness(world_of(objects, *templates)) == reason


def test_a_made_up_node_is_never_ready() -> None:
    world = world_of((claim_template("x"),), node_template("g")).with_nodes(made_up(machine("n", "g")))
    assert readiness(world) == "the node does not exist: it was made up in this session"


# --- what is expected ---------------------------------------------------------------------------------------


def test_a_node_is_expected_to_have_what_others_of_its_group_have() -> None:
    world = world_of((machine("a", "g"), local_slice("a"), machine("n", "g")), learn=GROUP)
    assert readiness(world) == missing(DRIVER, "learned from node a")
    assert readiness(world, name="a") == ""


def test_a_node_whose_group_has_no_devices_is_ready_at_once() -> None:
    old, new = machine("old", "g"), machine("n", "g")
    new["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    an_hour_later = expectations(seconds=3601)
    assert readiness(world_of((old, new), learn=GROUP), an_hour_later) == ""
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:59:59Z"
    assert "nothing is known" in readiness(world_of((old, new), learn=GROUP), an_hour_later)


GPU_NODES = {"nodeSelector": {GROUP: "g"}}
TAINT = {"key": "gpu", "effect": "NoSchedule"}
CORDONED: dict[str, Any] = {**machine("n", "g"), "spec": {"unschedulable": True}}
TAINTED: dict[str, Any] = {**machine("n", "g"), "spec": {"taints": [TAINT]}}
BY_DAEMON_SETS: dict[str, tuple[Object, list[Object], str]] = {
    "its driver has published nothing": (
        machine("n", "g"),
        [daemon_set("driver", DRIVER, **GPU_NODES)],
        missing(DRIVER, "DaemonSet kube-system/driver"),
    ),
    "it runs elsewhere": (machine("n", "h"), [daemon_set("driver", DRIVER, **GPU_NODES)], ""),
    "it runs on one other node": (machine("n", "g"), [daemon_set("driver", DRIVER, nodeName="m")], ""),
    "it runs two drivers": (
        machine("n", "g"),
        [daemon_set("driver", "b.example.com", "a.example.com")],
        missing("a.example.com", "DaemonSet kube-system/driver"),
    ),
    "two of them": (
        machine("n", "g"),
        [daemon_set("one", OTHER, nodeSelector={GROUP: "h"}), daemon_set("two", DRIVER)],
        missing(DRIVER, "DaemonSet kube-system/two"),
    ),
    "it does not tolerate a taint": (TAINTED, [daemon_set("driver", DRIVER)], ""),
    "it tolerates a taint": (
        TAINTED,
        [daemon_set("driver", DRIVER, tolerations=[{"operator": "Exists"}])],
        missing(DRIVER, "DaemonSet kube-system/driver"),
    ),
    "a cordon keeps no daemon off": (
        CORDONED,
        [daemon_set("driver", DRIVER)],
        missing(DRIVER, "DaemonSet kube-system/driver"),
    ),
}


@pytest.mark.parametrize(("node", "daemon_sets", "reason"), BY_DAEMON_SETS.values(), ids=BY_DAEMON_SETS)
def test_a_node_is_expected_to_have_the_drivers_of_daemon_sets(
    node: Object, daemon_sets: list[Object], reason: str
) -> None:
    assert readiness(world_of((node,)), expectations(*daemon_sets)) == reason


def test_with_the_slices_of_its_daemon_sets_a_node_is_ready() -> None:
    world = world_of((machine("n"), local_slice("n")))
    assert readiness(world, expectations(daemon_set("driver", DRIVER))) == ""


def test_settings_name_the_drivers_of_a_daemon_set_and_go_before_its_annotation() -> None:
    named = {"kube-system/a": [DRIVER], "kube-system/b": [DRIVER]}
    for each in (daemon_set("a"), daemon_set("b", OTHER)):
        source = f"DaemonSet kube-system/{each['metadata']['name']}"
        assert readiness(world_of((machine("n"),)), expectations(each, named=named)) == missing(DRIVER, source)


def test_templates_go_before_the_group_and_the_group_before_daemon_sets() -> None:
    daemons = expectations(daemon_set("driver", "c.example.com"))
    group = (machine("a", "g"), local_slice("a"), machine("n", "g"))
    assert readiness(world_of(group, NIC, learn=GROUP), daemons) == missing(OTHER, "template nic")
    assert readiness(world_of(group, learn=GROUP), daemons) == missing(DRIVER, "learned from node a")
    assert readiness(world_of(group), daemons) == missing("c.example.com", "DaemonSet kube-system/driver")


# --- nothing is known ---------------------------------------------------------------------------------------


def test_without_any_source_a_node_has_some_time_and_then_needs_slices() -> None:
    waits = "nothing is known of what it should have: its drivers have time until 2026-01-01T00:05:00Z"
    for objects, afterwards in (
        ((machine("n"),), "nothing is known of what it should have"),
        ((machine("n"), local_slice("n")), ""),
    ):
        world = world_of(objects)
        assert readiness(world, expectations(seconds=299)) == waits
        assert readiness(world, expectations(seconds=300)) == afterwards


def test_an_annotation_that_names_no_driver_is_a_problem_that_the_reason_names() -> None:
    wrong = expectations(daemon_set("driver", "GPU driver"))
    problem = 'DaemonSet kube-system/driver: metadata.annotations[dra-extender.dev/drivers]: "GPU driver" is not'
    assert readiness(world_of((machine("n"),)), wrong).startswith(f"nothing is known of what it should have ({problem}")


# --- the API server -----------------------------------------------------------------------------------------


class Lists:
    """An API server that lists DaemonSets, or refuses."""

    def __init__(self, *answers: Listing | ApiError) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def list(self, resource: object) -> Listing:
        assert resource is DAEMON_SETS
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, ApiError):
            raise answer
        return answer


def reader(api: object, clock: list[float]) -> DaemonSetReader:
    found: Api = api  # type: ignore[assignment]
    return DaemonSetReader(found, {}, lambda: clock[0])


async def test_daemon_sets_are_listed_again_after_ten_seconds() -> None:
    clock, api = [0.0], Lists(Listing((), 1), Listing((daemon_set("driver", DRIVER),), 2))
    read = reader(api, clock)
    for now, known in ((0.0, 0), (9.9, 0), (10.0, 1), (12.0, 1)):
        clock[0] = now
        assert len((await read.latest()).known) == known
    assert api.asked == 2


async def test_without_the_right_to_list_daemon_sets_the_reason_says_so() -> None:
    read = reader(Lists(ApiError(403, "Forbidden", "daemonsets.apps is forbidden")), [0.0])
    found = await read.latest()
    assert found.unread == "DaemonSets can't be listed: daemonsets.apps is forbidden"
    told = Expectations(found, expectations(seconds=400).now, timedelta(minutes=5))
    assert readiness(world_of((machine("n"),)), told) == f"nothing is known of what it should have ({found.unread})"


async def test_a_cluster_in_memory_has_daemon_sets() -> None:
    cluster = Cluster.of()
    await cluster.api.create(DAEMON_SETS, daemon_set("driver", DRIVER))
    (found,) = (await reader(cluster.api, [0.0]).latest()).known
    assert (str(found.key), found.drivers) == ("kube-system/driver", (DRIVER,))
