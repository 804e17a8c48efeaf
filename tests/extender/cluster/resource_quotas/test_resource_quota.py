"""ResourceQuota: how quotas are read, what scopes mean, who is charged, and what a cluster in memory refuses.

`tests/cluster/test_quota.py` compares the charges with those of a real API server.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from allocator import InvalidObjectError, Quantity
from extender import Cluster
from extender.answers.explain.explanation import Conclusion
from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.resource_quotas import Account, Charge, Extended, QuotaScope, charged_before, parse_resource_quota
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLAIMS, PODS, QUOTAS
from extender.lab.manifests import load_objects, over_quota
from tests.kit.clusters import GPU, Object, claim, claim_template, device_class, local_slice, node, parsed, pod, request
from tests.kit.objects.parts import api_object
from tests.kit.objects.quotas import resource_quota
from tests.kit.servers.memory import memory_api
from tests.kit.virtualtime import in_virtual_time

COUNTED = "gpu.deviceclass.resource.k8s.io/devices"
RESOURCE = "example.com/gpu"
MORE = " and 1 more asked for"
OVER = f"quota gpu of namespace ns: {{}} of {COUNTED} are used"


def limiting(**hard: Any) -> Object:
    """A quota in namespace "ns"; without limits, for one device of class gpu."""
    return resource_quota(hard or {COUNTED: "1"}, name="gpu")


def written(obj: Object) -> Object:
    """An object as people write it: an API server has not made it yet."""
    system = {"uid", "resourceVersion", "creationTimestamp"}
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name not in system}}


def from_template(name: str) -> Object:
    made = written(pod(name))
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return made


class TestReading:
    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ({"hard": {COUNTED: "many"}}, f'spec.hard[{COUNTED}]: "many" is not a quantity'),
            ({"hard": {COUNTED: "-1"}}, f'spec.hard[{COUNTED}]: "-1" is negative'),
            ({"hard": {COUNTED: "1500m"}}, f'spec.hard[{COUNTED}]: "1500m" is not a whole number'),
            ({"hard": [COUNTED]}, "spec.hard"),
            ({"scopes": ["Sometimes"]}, 'spec.scopes: "Sometimes" is none of'),
            (
                {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Like"}]}},
                'spec.scopeSelector.matchExpressions[0].operator: "Like" is none of',
            ),
        ],
    )
    def test_an_error_names_the_field_and_the_value(self, spec: Object, problem: str) -> None:
        with pytest.raises(InvalidObjectError) as caught:
            parse_resource_quota(api_object("ResourceQuota", "gpu", namespace="ns", spec=spec))
        assert problem in str(caught.value)

    def test_numbers_are_taken_as_well_as_texts(self) -> None:
        assert parse_resource_quota(limiting(**{COUNTED: 4})).hard == {COUNTED: Quantity.from_int(4)}

    def test_manifests_with_a_quota_are_checked_like_all_others(self) -> None:
        loaded = load_objects([{**limiting(), "spec": {"hrad": {}}}], "objects")
        assert [str(each) for each in loaded.problems] == [
            "objects: ResourceQuota gpu: spec.hrad: unknown field; did you mean hard?"
        ]


@pytest.mark.parametrize(
    ("scope", "spec", "has"),
    [
        (QuotaScope("Terminating"), {"activeDeadlineSeconds": 0}, True),
        (QuotaScope("Terminating"), {}, False),
        (QuotaScope("NotTerminating"), {}, True),
        (QuotaScope("BestEffort"), {"containers": [{"resources": {"limits": {RESOURCE: "1"}}}]}, True),
        (QuotaScope("BestEffort"), {"initContainers": [{"resources": {"limits": {"cpu": "1"}}}]}, False),
        (QuotaScope("NotBestEffort"), {"containers": [{"resources": {"requests": {"memory": "1"}}}]}, True),
        (QuotaScope("PriorityClass"), {"priorityClassName": "high"}, True),
        (QuotaScope("PriorityClass", "DoesNotExist"), {"priorityClassName": "high"}, False),
        (QuotaScope("PriorityClass", "In", ("high", "low")), {"priorityClassName": "high"}, True),
        (QuotaScope("PriorityClass", "In", ("high",)), {}, False),
        (QuotaScope("PriorityClass", "NotIn", ("high",)), {}, True),
        (
            QuotaScope("CrossNamespacePodAffinity"),
            {
                "affinity": {
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaces": ["x"]}}]
                    }
                }
            },
            True,
        ),
        (
            QuotaScope("CrossNamespacePodAffinity"),
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            False,
        ),
    ],
)
def test_a_pod_is_in_a_scope(scope: QuotaScope, spec: Object, *, has: bool) -> None:
    assert scope.has(spec) is has


class TestCharges:
    def test_a_special_claim_whose_pod_names_another_is_charged_in_full(self) -> None:
        metadata = {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}],
        }
        special, other = (parse_claim_object(claim(name, metadata=metadata)) for name in ("s", "t"))
        owner = pod("p", resources={RESOURCE: "2"})
        of_pod = {f"requests.{RESOURCE}": Quantity.from_int(2)}
        assert charged_before(special, parsed(owner), [special, other]) == of_pod
        assert charged_before(other, parsed(owner), [special, other]) == {}
        owner["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "t"}
        assert charged_before(special, parsed(owner), [special, other]) == {}
        assert charged_before(other, parsed(owner), [special, other]) == of_pod
        assert charged_before(special, None, [special]) == {}

    def test_the_texts_name_the_quota_and_all_that_is_exceeded(self) -> None:
        account = Account([parse_resource_quota(limiting(**{COUNTED: "8", RESOURCE: "1"}))], Extended.of([]))
        account.add(Charge({COUNTED: Quantity.from_int(7)}))
        found = account.refusal(Charge({COUNTED: Quantity.from_int(2), RESOURCE: Quantity.from_int(1)}))
        assert found is not None
        assert str(found) == f"quota gpu of namespace ns: 7 of 8 of {COUNTED} are used and 2 more asked for"
        assert found.message == f"exceeded quota: gpu, requested: {COUNTED}=2, used: {COUNTED}=7, limited: {COUNTED}=8"


class TestClusterInMemory:
    @in_virtual_time
    async def test_what_is_deleted_or_finished_leaves_room(self) -> None:
        api = memory_api(device_class(extended=RESOURCE))
        asking = written(pod("p", resources={RESOURCE: "1"}))
        await api.create(QUOTAS, limiting(**{f"requests.{RESOURCE}": "1"}))
        await api.create(PODS, asking)
        with pytest.raises(ApiError, match=r'pods "q" is forbidden: exceeded quota: gpu, requested: '):
            await api.create(PODS, {**asking, "metadata": {"namespace": "ns", "name": "q"}})
        await api.patch_status(PODS, ObjectKey("ns", "p"), {"status": {"phase": "Succeeded"}})
        await api.create(CLAIMS, written(claim("c")))
        with pytest.raises(ApiError, match="exceeded quota"):
            await api.create(CLAIMS, written(claim("d")))
        await api.delete(CLAIMS, ObjectKey("ns", "c"))
        await api.create(CLAIMS, written(claim("d")))
        (found,) = (await api.list(QUOTAS)).items
        assert found["status"] == {
            "hard": {f"requests.{RESOURCE}": "1"},
            "used": {f"requests.{RESOURCE}": "1"},
        }

    def test_simulate_refuses_what_an_api_server_refuses_and_says_why_claims_are_not_made(self) -> None:
        refused: list[str] = []
        objects = [
            *(GPU, node("a"), local_slice("a", 4), claim_template(), limiting()),
            *(from_template("first"), from_template("second"), written(claim("c"))),
        ]
        cluster = Cluster.from_objects(objects, refused=refused.append)
        full = f"{OVER.format('1 of 1')} and 1 more asked for"
        assert {each.pod: each.node or each.reason for each in cluster.schedule()} == {
            "ns/first": f"claim gpu can't be made from its template: {full}",
            "ns/second": f"claim gpu can't be made from its template: {full}",
        }
        assert cluster.explain("ns/first").cause == f"claim gpu can't be made from its template: {full}"
        assert refused == []
        cluster.remove("ResourceClaim", "c", "ns")
        first, second = cluster.schedule()
        assert (first.node, second.reason) == ("a", f"claim gpu can't be made from its template: {full}")

    def test_objects_of_manifests_are_refused_in_their_order_after_those_that_exist(self) -> None:
        big, small, old = written(claim("big", request(count=3))), written(claim("small")), claim("old")
        loaded = load_objects([big, small, old, GPU, limiting(**{COUNTED: "3"})], "objects")
        assert [str(each) for each in over_quota(loaded.objects)] == [
            f"objects: ResourceClaim ns/big is not made: {OVER.format('1 of 3')} and 3 more asked for"
        ]
        refused: list[str] = []
        cluster = Cluster.from_objects([GPU, limiting(), written(claim("c"))])
        cluster.add(written(claim("d")), refused=refused.append)
        assert [each.partition(":")[2] for each in refused] == [
            f" ResourceClaim ns/d is not made: {OVER.format('1 of 1')} and 1 more asked for"
        ]

    @pytest.mark.parametrize("uid", [{}, {"uid": ""}], ids=["no uid", "an empty uid"])
    def test_an_ordinary_claim_is_charged_beside_a_pod_without_a_uid(self, uid: dict[str, str]) -> None:
        """The pod is charged for one device, and the claim is not the special claim of the pod."""
        asking = written(pod("p", resources={RESOURCE: "1"}))
        asking["metadata"] |= uid
        objects = [
            device_class(extended=RESOURCE),
            limiting(**{f"requests.{RESOURCE}": "1"}),
            asking,
            written(claim("c")),
        ]
        (refused,) = over_quota(load_objects(objects, "objects").objects)
        assert str(refused).startswith("objects: ResourceClaim ns/c is not made: quota gpu of namespace ns")

    @pytest.mark.parametrize("uid", [{}, {"uid": ""}, {"uid": None}], ids=["no uid", "empty", "null"])
    async def test_objects_in_memory_have_a_uid_and_a_time(self, uid: dict[str, str | None]) -> None:
        made = written(pod("p"))
        made["metadata"] |= {**uid, "creationTimestamp": None}
        api = memory_api(made)
        metadata = (await api.get(PODS, ObjectKey("ns", "p")))["metadata"]
        assert (bool(metadata["uid"]), bool(metadata["creationTimestamp"])) == (True, True)

    def test_of_several_quotas_that_are_exceeded_the_first_by_name_is_named(self) -> None:
        """The API server names any of them."""
        hard = {"count/resourceclaims.resource.k8s.io": "0"}
        counted = [api_object("ResourceQuota", name, namespace="ns", spec={"hard": hard}) for name in ("z", "a")]
        loaded = load_objects([counted[0], limiting(**{COUNTED: "0"}), counted[1], GPU, written(claim("c"))], "objects")
        (said,) = over_quota(loaded.objects)
        assert "quota a of namespace ns" in str(said)

    def test_an_object_over_quota_takes_no_quota_from_others_although_it_is_only_warned_of(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "cluster.yaml"
        warned: list[str] = []
        big, pods = written(claim("big", request(count=2))), (from_template("first"), pod("other", "big"))
        file.write_text(
            yaml.safe_dump_all([GPU, node("a"), local_slice("a", 4), claim_template(), limiting(), big, *pods])
        )
        cluster = Cluster.from_manifests(file, warned=warned.append)
        assert len(warned) == 1
        assert cluster.explain("ns/first").verdict is Conclusion.FITS
        assert cluster.explain("ns/other").cause == "claim big does not exist"

    def test_the_special_claim_that_quota_refuses_is_told_before_it_is_tried(self) -> None:
        asking = pod("p", resources={RESOURCE: "1"})
        objects = [device_class(extended=RESOURCE), node("a"), local_slice("a", 2), limiting(**{COUNTED: "0"}), asking]
        found = Cluster.from_objects(objects).explain("ns/p")
        assert found.notes == (
            "on a node without a device plugin, the special claim is not made: " + OVER.format("0 of 0") + MORE,
        )
