"""Measurements on the wire: what is asked, what comes of the figures, and the API server that is measured against."""

import pytest
from rich.console import Console
from rich.table import Table

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, EVENTS, PODS, SLICES, Resource
from loadtest.latency_bench import Times
from loadtest.latency_bench import report as latency_report
from loadtest.stage import asked_names, request
from tests.kit.measure import percentile
from tests.kit.servers.raw import Call

DRA = "/apis/resource.k8s.io/v1"


def shown(table: Table) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("path", "resource", "key", "subresource"),
    [
        ("/api/v1/pods?watch=true", PODS, ObjectKey("", ""), ""),
        ("/api/v1/namespaces/default/pods/p/binding", PODS, ObjectKey("default", "p"), "binding"),
        (f"{DRA}/resourceslices/s", SLICES, ObjectKey("", "s"), ""),
        (f"{DRA}/namespaces/ns/resourceclaims/c/status", CLAIMS, ObjectKey("ns", "c"), "status"),
        ("/apis/events.k8s.io/v1/namespaces/ns/events", EVENTS, ObjectKey("ns", ""), ""),
        (DRA, None, ObjectKey("", ""), ""),
        ("/api", None, ObjectKey("", ""), ""),
    ],
)
def test_a_path_says_what_is_meant(path: str, resource: Resource | None, key: ObjectKey, subresource: str) -> None:
    call = Call.of(f"GET {path} HTTP/1.1\r\n\r\n", b"")
    assert (call.resource, call.key, call.subresource) == (resource, key, subresource)


def test_a_request_is_one_piece_with_its_length() -> None:
    head, _, body = request("POST", "/filter", {"a": 1}).partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert head.startswith(b"POST /filter HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 7\r\n" in head


def test_all_names_are_asked_in_pieces_that_keep_their_order() -> None:
    names = [f"{number:02}" for number in range(26)]
    asked = asked_names(names, list.reverse)
    assert asked == ["25", *names[20:25], *names[15:20], *names[10:15], *names[5:10], *names[:5]]


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (95, 95), (99, 99), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: int, value: int) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


@pytest.mark.parametrize(("slow", "verdict"), [(1, "met"), (2, "MISSED")])
def test_one_call_in_a_hundred_may_be_slow(slow: int, verdict: str) -> None:
    filters = [0.001] * (100 - slow) + [0.5] * slow
    times = Times(
        {"filter": filters, "prioritize": [0.001], "bind": [0.002] * 100}, slices=20, seconds=2.0, computed=0.5
    )
    text = " ".join(shown(latency_report(times)).split())
    assert f"20 {verdict}" in text
    assert "50.0 binds and 10.0 slices a second; the service computed 25% of the time; 0 failures" in text
