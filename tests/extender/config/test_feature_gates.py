"""Feature gates are as on the API server, unless the settings say otherwise."""

from collections.abc import Mapping

import pytest

from allocator import GATES, Features
from extender.config.sources import load
from extender.kube.connection.transport import HttpRequest
from extender.kube.discovery import GATES_SECONDS, ServerGates, server_gates
from tests.kit.servers.transport import DEFAULT_GATES, HEALTHY, FakeApi, Fault, gate_metrics
from tests.kit.virtualtime import run

OFF = dict.fromkeys(GATES, False)


def faulty(fault: Fault) -> FakeApi:
    """A server with a fault at its metrics."""

    def fault_for(request: HttpRequest) -> Fault:
        return fault if request.path == "/metrics" else HEALTHY

    return FakeApi(fault_for=fault_for)


TOLD: dict[str, tuple[Mapping[str, bool], str, Mapping[str, bool]]] = {
    "on and off": (DEFAULT_GATES | {"DRADeviceTaints": False}, "37", DEFAULT_GATES | {"DRADeviceTaints": False}),
    "gates that do not concern us": (DEFAULT_GATES | {"ContextualLogging": True}, "37", DEFAULT_GATES),
    "not known yet to an older server": ({"DRAAdminAccess": True}, "36", OFF | {"DRAAdminAccess": True}),
    "no longer known to a newer server": ({"DRADeviceTaints": False}, "40", DEFAULT_GATES | {"DRADeviceTaints": False}),
}


@pytest.mark.parametrize(("metrics", "minor", "gates"), TOLD.values(), ids=list(TOLD))
def test_the_gates_are_those_that_the_server_tells(
    metrics: Mapping[str, bool], minor: str, gates: Mapping[str, bool]
) -> None:
    fake = FakeApi(metrics=gate_metrics(metrics), version={"major": "1", "minor": minor}, chunk_sizes=(7, 50))
    assert run(server_gates(fake)) == ServerGates(gates)


NOT_TOLD = {
    "not allowed": (faulty(Fault(403, reason="Forbidden", message='cannot get path "/metrics"')), "cannot get path"),
    "no answer": (faulty(Fault(hangs=True)), f"GET /metrics: no answer within {GATES_SECONDS:g} s"),
    "no connection": (faulty(Fault(refused=True)), "connection refused"),
    "cut": (faulty(Fault(cut_after=20)), "connection reset"),
    "broken": (faulty(Fault(500)), "GET /metrics: outcome unknown: HTTP 500"),
    "without gates": (
        FakeApi(metrics=b"go_threads 12\n"),
        "GET /metrics: there is no metric kubernetes_feature_enabled",
    ),
    "other text": (FakeApi(metrics=b"<html>\xff"), "GET /metrics: there is no metric kubernetes_feature_enabled"),
}


@pytest.mark.parametrize(("fake", "problem"), NOT_TOLD.values(), ids=list(NOT_TOLD))
def test_a_server_that_does_not_tell_is_no_error(fake: FakeApi, problem: str) -> None:
    told = run(server_gates(fake))
    assert told.gates == {}
    assert problem in told.problem


def test_settings_go_before_the_gates_of_the_server() -> None:
    settings = load("featureGates: {DRADeviceTaints: false}")
    over = settings.over({"DRADeviceTaints": True, "DRADerivedAttributes": True, "DRAAdminAccess": False})
    assert over.features == Features(device_taints=False, derived_attributes=True, admin_access=False)
    assert over.server == settings.server
