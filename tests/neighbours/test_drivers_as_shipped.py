"""Manifests and slices of drivers as their makers ship them. DRIVER_MANIFESTS names the folder that has them.

The folder has one for each repository: `dranet`, `dra-driver-cpu` and so on. docs/reference/neighbours.md has the
commits. Slices are those that makers show in their examples, and those of `drivers/`, in the form that they publish.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from extender import Cluster
from extender.lab.manifests import load
from tests.kit import clusters
from tests.kit.clusters import Object
from tests.kit.objects.parts import api_object
from tests.neighbours.driver_scenes import SETTINGS, WORLDS, answers, world

WRONG: Final = {
    "dra-driver-memory/hack/ci/install_unpriv.tmpl.yaml": 'line 129: the key "memory" is there twice',
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims-1.yaml": "is resource.k8s.io/v1 today",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims.yaml": "is resource.k8s.io/v1 today",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job-1.yaml": "resourceClaims[0].resourceClaimName today",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job.yaml": "resourceClaims[0].resourceClaimName today",
    "dra-driver-nvidia-gpu/demo/specs/quickstart/v1beta1/gpu-test-vfiopci.yaml": "is resource.k8s.io/v1beta1 today",
    "dra-driver-nvidia-gpu/demo/specs/selectors/claims.yaml": "is resource.k8s.io/v1 today",
    "dra-driver-nvidia-gpu/demo/specs/selectors/pods.yaml": "resourceClaims[0].resourceClaimTemplateName today",
    "dra-driver-nvidia-gpu/tests/bats/specs/pods-shared-gpu.yaml": '"stress-pod-__INDEX__" is not a DNS subdomain',
    "dra-example-driver/demo/examples/device-taints-tolerations/device-taint-pod-noschedule/4-pod-not-scheduled.yaml": (
        "apiVersion: is required: Pod is of v1"
    ),
    "dranet/examples/aws_eks_examples/gpu-efa/resource-claim.yaml": "status.reservedFor[0].uid: is required",
    "intel-resource-drivers-for-kubernetes/deployments/gpu/examples/pod-inline-aligned-gpus.yaml": (
        "apiVersion: is required: Pod is of v1"
    ),
}
"""What is refused, by file, and a part of why. Half of it is of earlier APIs, which `convert` writes anew."""

QUICK_STARTS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "example-gpus": {
        "dra-example-driver/demo/examples/admin-access": ("1 of 1", ""),
        "dra-example-driver/demo/examples/basic-multiple-requests": ("1 of 1", ""),
        "dra-example-driver/demo/examples/basic-resourceclaim-opaque-config": ("1 of 1", ""),
        "dra-example-driver/demo/examples/basic-resourceclaimtemplate": ("2 of 2", ""),
        "dra-example-driver/demo/examples/basic-shared-claim-across-containers": ("1 of 1", ""),
        "dra-example-driver/demo/examples/basic-shared-claim-across-pods": ("2 of 2", ""),
        "dra-example-driver/demo/examples/cel-selector": ("1 of 1", ""),
        "dra-example-driver/demo/examples/device-taints-tolerations/device-taint-pod-toleration": (
            "1 of 2",
            "1 untolerated device taint for request gpu",
        ),
        "dra-example-driver/demo/examples/extended-resource-request": ("2 of 2", ""),
        "dra-example-driver/demo/examples/initcontainer-shared-gpu": ("1 of 1", ""),
        "dra-example-driver/demo/examples/podgroup-resourceclaimtemplate": (
            "2 of 4",
            "1 waiting for devices for 2 pods of group group-2 together",
        ),
        "dra-example-driver/demo/examples/prioritized-alternatives": ("2 of 2", ""),
    },
    "example-partitions": {
        "dra-example-driver/demo/examples/gpu-allow-multiple-allocations": ("2 of 2", ""),
        "dra-example-driver/demo/examples/gpu-allow-multiple-allocations-partitionable": ("2 of 2", ""),
        "dra-example-driver/demo/examples/partitionable-devices": ("1 of 1", ""),
    },
    "example-preparing": {
        "dra-example-driver/demo/examples/binding-conditions": (
            "0 of 1",
            "waiting for gpu.example.com/ready of gpu.example.com/n/gpu-0",
        ),
    },
    "example-cards": {"dra-example-driver/demo/examples/net-consumable-capacity": ("2 of 2", "")},
    "example-cpus": {"dra-example-driver/demo/examples/native-resource-request": ("1 of 1", "")},
    "dranet": {
        "dra-driver-nvidia-gpu/demo/specs/quickstart/gpu-test7.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/gpu-test8.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test-mps.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test1.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test2.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test3.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test5.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test6.yaml": ("0 of 4", "no such key: index"),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1beta1/gpu-test1.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1beta1/gpu-test3.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/tests/bats/specs/gpu-cel-nomatch.yaml": ("0 of 1", "1 no device matches request gpu"),
        "dra-driver-nvidia-gpu/tests/bats/specs/gpu-job-rct-parallel.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/tests/bats/specs/gpu-two-claims-one-pod.yaml": ("1 of 1", ""),
    },
    "nvidia-partitions": {
        "dra-driver-nvidia-gpu/demo/specs/quickstart/v1/gpu-test4.yaml": ("1 of 4", "1 not enough shared counters"),
        "dra-driver-nvidia-gpu/tests/bats/specs/gpu-anymig.yaml": ("1 of 1", ""),
        "dra-driver-nvidia-gpu/tests/bats/specs/gpu-simple-mig.yaml": ("1 of 1", ""),
    },
    "nvidia-shares": {
        "dra-driver-nvidia-gpu/demo/specs/consumable-shares/integer-sharing.yaml": ("4 of 4", ""),
        "dra-driver-nvidia-gpu/demo/specs/consumable-shares/memory-sharing.yaml": ("2 of 2", ""),
        "dra-driver-nvidia-gpu/demo/specs/consumable-shares/unlimited-sharing.yaml": ("2 of 2", ""),
    },
    "cpu-grouped": {
        "dra-driver-cpu/hack/examples/pod_with_pod_level_resources.yaml": ("1 of 1", ""),
        "dra-driver-cpu/hack/examples/pod_with_resource_claim_grouped_mode.yaml": ("1 of 1", ""),
    },
    "cpu-individual": {
        "dra-driver-cpu/hack/examples/pod_with_resource_claim_individual_mode.yaml": ("1 of 1", ""),
    },
    "cpu-mapped": {
        "dra-driver-cpu/hack/examples/pod_with_resource_claim_node_allocatable.yaml": ("2 of 2", ""),
    },
}
"""By slices: how many pods of a quick start get a node, and why the others do not."""

PUBLISHED: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "aws_eks_examples/gpu-efa": {"gpu-efa-unaligned": (1, 1), "gpu-efa-aligned": (1, 1)},
    "azure_aks_examples/gb300": {
        "1nic-aligned": (1, 1),
        "1nic-unaligned": (1, 1),
        "2nic-aligned": (1, 2),
        "ib-same-fabric": (0, 1),
    },
    "azure_aks_examples/mi300x": {"4nic-same-numa": (0, 4), "4nic-cross-numa": (0, 4), "8nic-all": (0, 8)},
    "oci_oke_examples/BM.GPU.GB200-v3.4": {
        "1nic-aligned": (1, 1),
        "1nic-unaligned": (1, 1),
        "2nic-aligned": (1, 2),
        "4nic-aligned": (1, 4),
        "4gpu-8nic": (4, 8),
    },
}
"""Machines whose slices DRANET and the NVIDIA driver have published: templates, and the GPUs and cards of a pod."""


@pytest.fixture(scope="module")
def shipped() -> Path:
    """The folder of the makers' manifests."""
    found = os.environ.get("DRIVER_MANIFESTS")
    if not found:
        pytest.skip("DRIVER_MANIFESTS names no folder")
    return Path(found)


def test_what_is_refused_is_named_and_all_else_is_read(shipped: Path) -> None:
    folders = [each for each in sorted(shipped.iterdir()) if each.is_dir() and each.name != "api"]
    files = {str(each.path.relative_to(shipped)): each for each in load(folders).files}
    assert {name for name, each in files.items() if each.problems} == set(WRONG)
    for name, said in WRONG.items():
        assert said in str(files[name].problems[0])
    assert sum(sum(each.used.values()) for each in files.values()) > 350


@pytest.mark.parametrize(
    ("slices", "path"), [(slices, path) for slices, paths in QUICK_STARTS.items() for path in paths]
)
def test_pods_of_quick_starts_get_devices_or_the_reason(shipped: Path, slices: str, path: str) -> None:
    placed, reason = QUICK_STARTS[slices][path]
    found = Cluster.from_manifests([WORLDS / f"{slices}.yaml", shipped / path], settings=SETTINGS).schedule()
    assert found.summary.startswith(f"{placed} pod")
    assert [each.reason for each in found if not each.node and reason not in each.reason] == []


@pytest.mark.parametrize("machine", PUBLISHED)
def test_claims_get_devices_of_slices_that_drivers_have_published(shipped: Path, machine: str) -> None:
    objects = list(_objects((shipped / "dranet" / "examples" / machine).glob("*.yaml")))
    templates = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ResourceClaimTemplate"}
    assert list(templates) == list(PUBLISHED[machine])
    there = [each for each in objects if each["kind"] == "ResourceSlice"]
    named = {each["metadata"]["name"]: each for each in [*world("dranet"), *objects] if each["kind"] == "DeviceClass"}
    nodes = [clusters.node(name) for name in {each["spec"]["nodeName"] for each in there}]
    for name, (gpus, cards) in PUBLISHED[machine].items():
        [answer] = answers(
            Cluster.from_objects(
                [*nodes, *named.values(), *there, templates[name], _using(name)], settings=SETTINGS
            ).schedule()
        )
        assert (answer.count("gpu.nvidia.com/"), answer.count("dra.net/")) == (gpus, cards)


def _objects(paths: Iterable[Path]) -> Iterable[Object]:
    for path in sorted(paths):
        for document in filter(None, yaml.safe_load_all(path.read_text())):
            yield from document.get("items") or [document]


def _using(template: str) -> Object:
    entry = {"name": "devices", "resourceClaimTemplateName": template}
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [entry]}
    return api_object("Pod", "p", namespace="default", spec=spec)
