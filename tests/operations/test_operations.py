"""The operations themselves: equal runs, independent draws, and an audit that sees what is wrong."""

from typing import Any

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, SLICES
from tests.kit import virtualtime
from tests.kit.clusters import Object, claim, device_class, local_slice, node
from tests.kit.servers.memory import memory_api
from tests.kit.shrinking import smallest
from tests.operations.audit import RunningAudit
from tests.operations.play import Plan, play


def test_equal_plans_do_the_same_and_all_holds() -> None:
    plan = Plan(5, tuple(range(80)))
    one, other = play(plan), play(plan)
    assert one.violation is None
    assert (one.told, one.bound, one.judged) == (other.told, other.bound, other.judged)
    assert one.bound
    assert one.judged


def test_an_operation_is_drawn_from_its_number_alone() -> None:
    assert play(Plan(5, (3, 7, 9))).told == [each for each in play(Plan(5, tuple(range(10)))).told if each[0] in "379"]


def test_a_list_is_as_small_as_it_gets() -> None:
    assert smallest(range(100), lambda rest: {17, 61} <= set(rest), 1000) == [17, 61]


# --- what the audit sees --------------------------------------------------------------------------------------------


def world() -> list[Object]:
    return [node("n"), local_slice("n", 2), device_class(selectors=['device.driver == "gpu.example.com"'])]


async def given(api: Any, name: str, *devices: str) -> None:
    found = claim(name, allocated=devices, at="n")["status"]
    await api.patch_status(CLAIMS, ObjectKey("ns", name), {"status": found})


@virtualtime.in_virtual_time
async def test_a_device_that_is_given_twice_is_found_by_the_second_claim() -> None:
    api = memory_api(*world(), claim("a"), claim("b"))
    audit = RunningAudit(api)
    await given(api, "a", "n/gpu-0")
    assert list(audit.findings()) == []
    await given(api, "b", "n/gpu-0")
    assert [finding.claims for finding in audit.findings()] == [("ns/a", "ns/b")]
    assert list(audit.findings()) == []
    assert [finding.claims for finding in audit.held_twice()] == [("ns/a", "ns/b")]


@virtualtime.in_virtual_time
async def test_a_claim_that_gets_too_many_devices_is_found() -> None:
    api = memory_api(*world(), claim("a"))
    audit = RunningAudit(api)
    await given(api, "a", "n/gpu-0", "n/gpu-1")
    (finding,) = audit.findings()
    assert finding.claims == ("ns/a",)
    assert audit.judged == 1


@virtualtime.in_virtual_time
async def test_what_a_driver_changes_later_is_no_fault_of_the_claim() -> None:
    api = memory_api(*world(), claim("a"))
    audit = RunningAudit(api)
    await given(api, "a", "n/gpu-0")
    assert list(audit.findings()) == []
    await api.delete(SLICES, ObjectKey("", "slice-n"))
    assert list(audit.findings()) == []
