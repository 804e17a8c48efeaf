"""What was asked of an API server is counted by verb, resource and answer."""

import pytest

from extender.kube.api import ApiError, OutcomeUnknownError
from extender.kube.connection.transport import NO_ANSWER, HttpRequest, RequestKind, asked
from extender.kube.resources import CLAIMS
from tests.extender.kube.live_scenes import api_over, default, make_claim
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import in_virtual_time, run

CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"

ASKED = [
    (HttpRequest("GET", "/api/v1/nodes", {"limit": "500"}), ("list", "nodes")),
    (HttpRequest("GET", "/api/v1/nodes", {"watch": "true"}), ("watch", "nodes")),
    (HttpRequest("GET", "/api/v1/nodes/n"), ("get", "nodes")),
    (HttpRequest("GET", "/apis/resource.k8s.io/v1/resourceclaims"), ("list", "resourceclaims")),
    (HttpRequest("GET", CLAIM_PATH), ("get", "resourceclaims")),
    (HttpRequest("POST", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"), ("create", "resourceclaims")),
    (HttpRequest("PUT", f"{CLAIM_PATH}/status"), ("update", "resourceclaims/status")),
    (HttpRequest("PATCH", CLAIM_PATH), ("patch", "resourceclaims")),
    (HttpRequest("DELETE", CLAIM_PATH), ("delete", "resourceclaims")),
    (HttpRequest("POST", "/api/v1/namespaces/ns/pods/p/binding"), ("create", "pods/binding")),
    (HttpRequest("GET", "/api"), ("get", "")),
    (HttpRequest("GET", "/version"), ("get", "")),
    (HttpRequest("GET", "/apis/resource.k8s.io"), ("get", "")),
    (HttpRequest("GET", "/apis/resource.k8s.io/v1"), ("get", "")),
]


@pytest.mark.parametrize(("request_", "found"), ASKED, ids=[str(request) for request, _ in ASKED])
def test_a_request_is_named_by_verb_and_resource(request_: HttpRequest, found: tuple[str, str]) -> None:
    assert asked(request_) == found


@in_virtual_time
async def test_every_answer_counts_those_that_were_repeated_too() -> None:
    fake = FakeApi()
    fake.put(CLAIMS, make_claim("a"))
    fake.faults.extend([Fault(500), Fault(429), Fault(), Fault(404)])
    api = api_over(fake)
    await api.get(CLAIMS, default("a"))
    with pytest.raises(ApiError):
        await api.get(CLAIMS, default("a"))
    get = RequestKind("get", "resourceclaims")
    assert api.request_counts.answers == {(get, "500"): 1, (get, "429"): 1, (get, "200"): 1, (get, "404"): 1}
    assert api.repeats == 2
    assert sum(api.request_counts.durations["get"].buckets) == 4
    assert api.request_counts.durations["get"].total > 0


def test_a_call_without_an_answer_counts_as_well() -> None:
    fake = FakeApi()
    fake.fault_for = lambda _: Fault(hangs=True)
    api = api_over(fake)
    with pytest.raises(OutcomeUnknownError):
        run(api.delete(CLAIMS, default("a")))
    assert api.request_counts.answers == {(RequestKind("delete", "resourceclaims"), NO_ANSWER): 1}
