"""What is read of the specs of pods is remembered, and nobody can tell."""

from typing import Any

import pytest

from allocator import InvalidObjectError
from extender.cluster.objects.pods import parse_pod

_CONTAINER = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
_SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}


def pod(name: str = "p", *, status: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"containers": [_CONTAINER], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], **spec},
        "status": status or {},
    }


def test_pods_with_equal_specs_share_what_is_read_of_them() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    one, other = (parse_pod(pod(name, tolerations=tolerations)) for name in ("p", "q"))
    assert one.requirements is other.requirements
    assert (one.name, other.name) == ("p", "q")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initContainers", [_CONTAINER | {"resources": {"requests": {"cpu": "3"}}}]),
        ("containers", [_CONTAINER | {"resources": {"limits": {"example.com/gpu": 1}}}]),
        ("resourceClaims", [{"name": "gpu", "resourceClaimTemplateName": "c"}]),
        ("schedulingGates", [{"name": "wait"}]),
        ("volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
        ("nodeSelector", {"zone": "a"}),
        ("affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _SELECTOR}}),
        ("affinity", {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        ("tolerations", [{"key": "gpu"}]),
        ("topologySpreadConstraints", [{"topologyKey": "zone"}]),
        ("overhead", {"cpu": "1"}),
        ("resources", {"requests": {"cpu": "7"}}),
        ("schedulingGroup", {"podGroupName": "team"}),
        ("priority", 7),
        ("preemptionPolicy", "Never"),
        ("schedulerName", "ours"),
        ("nodeName", "n"),
    ],
)
def test_every_field_of_a_spec_counts(field: str, value: Any) -> None:
    plain = parse_pod(pod())
    changed = parse_pod(pod(**{field: value}))
    assert changed != plain
    assert parse_pod(pod()) == plain
    assert parse_pod(pod(**{field: value})) == changed


def test_a_problem_of_a_spec_is_told_of_each_pod() -> None:
    for _ in range(2):
        with pytest.raises(InvalidObjectError, match=r"spec\.tolerations\[0\]\.key: 7 is not a string"):
            parse_pod(pod(tolerations=[{"key": 7}]))


def test_a_spec_that_cannot_be_written_as_json_is_read() -> None:
    parsed = parse_pod(pod(nodeSelector={"zone": "\ud800"}, tolerations=[{"key": "big", "tolerationSeconds": 2**62}]))
    assert parsed.requirements.labels == (("zone", "\ud800"),)


def test_what_claims_take_is_of_one_pod() -> None:
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "2"}]}
    taking = parse_pod(pod(status={"nodeAllocatableResourceClaimStatuses": [entry]}))
    assert [each.claim for each in taking.resources.claims] == ["c"]
    assert parse_pod(pod()).resources.claims == ()
