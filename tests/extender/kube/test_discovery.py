"""Which versions are spoken, where objects are, and what an API server must serve and allow."""

from collections.abc import Collection, Mapping

import orjson
import pytest

from extender.cluster.live import usable_api
from extender.faces.commands.audit import AUDITED, listed
from extender.faces.commands.reading import EXPLAINED
from extender.kube.api import ApiError, ConnectError, ObjectKey, OutcomeUnknownError, RawObject, UnreachableError
from extender.kube.discovery import NotServedError, Served, discover
from extender.kube.remote import RemoteApi, RequestTiming
from extender.kube.resources import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Resource,
)
from tests.extender.kube.live_scenes import SERVED, half
from tests.kit.servers.transport import ALL_VERSIONS, FakeApi, Fault
from tests.kit.virtualtime import run

DRA = (CLAIMS, TEMPLATES, SLICES, CLASSES)
PLURALS = frozenset(resource.plural for resource in DRA)
RULES = frozenset({TAINT_RULES.plural})

URL = "https://api.example.com:6443"


def serving(**versions: frozenset[str]) -> Mapping[str, Mapping[str, frozenset[str]]]:
    return {**ALL_VERSIONS, "resource.k8s.io": versions}


VERSIONS: dict[str, tuple[Mapping[str, frozenset[str]], str, str | None]] = {
    "all": ({"v1": PLURALS | RULES, "v1beta2": PLURALS, "v1beta1": PLURALS}, "v1", "v1"),
    "taint rules in alpha": ({"v1": PLURALS, "v1alpha3": RULES}, "v1", "v1alpha3"),
    "taint rules in beta": ({"v1": PLURALS, "v1beta2": PLURALS | RULES, "v1alpha3": RULES}, "v1", "v1beta2"),
    "v1beta2 only": ({"v1beta2": PLURALS}, "v1beta2", None),
    "v1beta1 only": ({"v1beta1": PLURALS, "v1alpha3": RULES}, "v1beta1", "v1alpha3"),
    "a version to come": ({"v2": PLURALS, "v1": PLURALS}, "v1", None),
}


@pytest.mark.parametrize(("versions", "claims", "rules"), VERSIONS.values(), ids=list(VERSIONS))
def test_each_kind_has_the_best_version_that_is_served(
    versions: Mapping[str, frozenset[str]], claims: str, rules: str | None
) -> None:
    served = run(discover(FakeApi(served=serving(**versions))))
    assert {served.versions[resource.kind] for resource in DRA} == {claims}
    assert served.versions.get(TAINT_RULES.kind) == rules
    assert served.missing == ()


def test_versions_are_chosen_kind_by_kind() -> None:
    mixed = serving(v1=PLURALS - {SLICES.plural}, v1beta2=frozenset({SLICES.plural}))
    served = run(discover(FakeApi(served=mixed)))
    assert [served.versions[resource.kind] for resource in DRA] == ["v1", "v1", "v1beta2", "v1"]


PATHS = [
    (NODES, None, "", "/api/v1/nodes"),
    (NODES, ObjectKey("", "n"), "", "/api/v1/nodes/n"),
    (PODS, ObjectKey("ns", "p"), "binding", "/api/v1/namespaces/ns/pods/p/binding"),
    (PODS, ObjectKey("ns", ""), "", "/api/v1/namespaces/ns/pods"),
    (CLAIMS, None, "", "/apis/resource.k8s.io/v1/resourceclaims"),
    (CLAIMS, ObjectKey("ns", "c"), "status", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status"),
    (SLICES, ObjectKey("", "a/b?c"), "", "/apis/resource.k8s.io/v1/resourceslices/a%2Fb%3Fc"),
    (BUDGETS, None, "", "/apis/policy/v1/poddisruptionbudgets"),
]


@pytest.mark.parametrize(("resource", "key", "subresource", "path"), PATHS)
def test_objects_are_where_the_api_has_them(
    resource: Resource, key: ObjectKey | None, subresource: str, path: str
) -> None:
    assert SERVED.path(resource, key, subresource) == path


def test_a_kind_that_is_not_served_has_no_path() -> None:
    with pytest.raises(NotServedError, match=r"devicetaintrules\.resource\.k8s\.io is not served in version v1, "):
        SERVED.path(TAINT_RULES)


@pytest.mark.parametrize("fault", [Fault(500), Fault(refused=True), Fault(hangs=True)])
def test_discovery_without_an_answer_is_no_discovery(fault: Fault) -> None:
    with pytest.raises(UnreachableError if fault.refused else OutcomeUnknownError):
        run(discover(FakeApi(fault_for=lambda _: fault)))


def test_discovery_that_is_refused_says_so() -> None:
    with pytest.raises(ApiError, match="who are you"):
        run(discover(FakeApi(fault_for=lambda _: Fault(401, message="who are you"))))


# --- an API server that we can work with --------------------------------------------------------------------


def use(fake: FakeApi, listing: Collection[Resource] | None = None) -> RemoteApi:
    return run(usable_api(fake, URL, random=half, timing=RequestTiming(), listing=listing))


def problems(fake: FakeApi, listing: Collection[Resource] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConnectError) as caught:
        use(fake, listing)
    return caught.value.problems


def test_a_server_that_serves_and_allows_all_is_usable() -> None:
    assert use(FakeApi()).served == Served(
        {resource.kind: "v1" for resource in (NODES, PODS, NAMESPACES, *DRA, BUDGETS)},
    )


def test_a_server_without_dra_is_refused_and_what_is_missing_is_named() -> None:
    served = {group: versions for group, versions in ALL_VERSIONS.items() if group != "resource.k8s.io"}
    found = problems(FakeApi(served=served))
    assert found[0] == (
        f"{URL}: resourceclaims are not served in resource.k8s.io/v1 or resource.k8s.io/v1beta2 or "
        "resource.k8s.io/v1beta1 (Kubernetes 1.32 or later, with DRA enabled)"
    )
    assert [text.split()[1] for text in found] == [resource.plural for resource in DRA]


def test_what_the_account_may_not_is_named() -> None:
    denied = frozenset({("watch", "nodes"), ("update", "resourceclaims/status"), ("create", "pods/binding")})
    assert problems(FakeApi(denied=denied)) == (
        f"{URL}: not allowed: watch nodes (RBAC of our account)",
        f"{URL}: not allowed: update resourceclaims/status.resource.k8s.io (RBAC of our account)",
        f"{URL}: not allowed: create pods/binding (RBAC of our account)",
    )


@pytest.mark.parametrize(
    ("version", "is_needed"),
    [
        ({"major": "1", "minor": "36"}, True),
        ({"major": "1", "minor": "36+"}, True),
        ({"major": "1", "minor": "37"}, True),
        ({"major": "2", "minor": "0"}, True),
        ({"major": "1", "minor": "35"}, False),
        ({"major": "1", "minor": "unknown"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_the_right_to_bind_claims_is_needed_where_the_server_asks_for_it(version: RawObject, is_needed: bool) -> None:
    fake = FakeApi(denied=frozenset({("update", "resourceclaims/binding")}), version=version)
    if is_needed:
        expected = f"{URL}: not allowed: update resourceclaims/binding.resource.k8s.io (RBAC of our account)"
        assert problems(fake) == (expected,)
    else:
        assert use(fake).served.versions


READS: dict[str, Collection[Resource]] = {"audit": AUDITED, "explain": EXPLAINED}


@pytest.mark.parametrize("resources", READS.values(), ids=READS)
def test_who_only_reads_needs_to_list_what_is_read_and_nothing_else(resources: Collection[Resource]) -> None:
    fake = FakeApi()
    use(fake, resources)
    reviews = [orjson.loads(each.body or b"") for each in fake.requests if each.method == "POST"]
    asked = [
        (each["spec"]["resourceAttributes"]["verb"], each["spec"]["resourceAttributes"]["resource"]) for each in reviews
    ]
    assert asked == [("list", each.plural) for each in resources if each.kind in SERVED.versions]


@pytest.mark.parametrize("resources", READS.values(), ids=READS)
def test_who_only_reads_finds_none_of_what_a_server_need_not_have(resources: Collection[Resource]) -> None:
    fake = FakeApi()
    fake.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    snapshot = run(listed(use(fake, resources), resources))
    assert (list(snapshot.nodes), list(snapshot.rules)) == (["n"], [])


def test_who_only_reads_is_told_what_of_that_is_missing() -> None:
    fake = FakeApi(
        served=serving(v1=PLURALS - {CLASSES.plural, TEMPLATES.plural}), denied=frozenset({("list", "nodes")})
    )
    assert [text.split()[1] for text in problems(fake, AUDITED)] == [CLASSES.plural]
    fake = FakeApi(denied=frozenset({("list", "nodes"), ("list", "resourceclaimtemplates"), ("watch", "nodes")}))
    assert problems(fake, AUDITED) == (f"{URL}: not allowed: list nodes (RBAC of our account)",)


def test_kinds_that_are_not_served_need_no_permission() -> None:
    assert use(FakeApi(denied=frozenset({("list", TAINT_RULES.plural)}))).served.versions


def test_a_server_that_does_not_tell_what_is_allowed_is_given_the_benefit_of_the_doubt() -> None:
    fake = FakeApi()
    fake.fault_for = lambda request: Fault(403) if request.method == "POST" else Fault()
    assert use(fake).served.missing == ()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(refused=True), "connection refused"),
        (Fault(hangs=True), "no answer within 10 s"),
        (Fault(503, message="starting"), "HTTP 503: starting"),
        (Fault(401, message="Unauthorized"), "Unauthorized"),
    ],
)
def test_a_server_that_can_not_be_asked_is_named_with_the_reason(fault: Fault, text: str) -> None:
    fake = FakeApi(fault_for=lambda _: fault)
    (problem,) = problems(fake)
    assert problem.startswith(f"{URL}: ")
    assert problem.endswith(text)
