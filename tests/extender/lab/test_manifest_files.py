"""Files and folders with manifests: which are read, and which are named as unreadable."""

import os
from pathlib import Path

import pytest

from extender.lab.manifests import MOST_MIB, load
from tests.extender.lab.scenes import CLASS, report, written

REAL = Path(__file__).parents[4] / "shared" / "manifests"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/tty", "pipe"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    (only,) = load([path]).files
    assert [str(problem) for problem in only.problems] == ["cannot be read: not a regular file"]
    assert not only.is_readable


def test_what_the_process_was_given_open_may_be_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, CLASS.encode())
    os.close(writing)
    try:
        loaded = load([Path(f"/dev/fd/{reading}")])
    finally:
        os.close(reading)
    assert [each.name for each in loaded.objects] == ["gpu"]


def test_a_file_that_would_fill_the_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate((MOST_MIB << 20) + 1)
    (only,) = load([path]).files
    assert [str(problem) for problem in only.problems] == ["cannot be read: larger than 256 MiB"]


def test_folders_are_read_by_name_and_to_the_bottom(tmp_path: Path) -> None:
    for name in ("b/z.yml", "b/c/y.json", "a.yaml", ".hidden/x.yaml", "notes.txt"):
        written(tmp_path, name, "")
    files = [each.path.relative_to(tmp_path).as_posix() for each in load([tmp_path]).files]
    assert files == ["a.yaml", "b/c/y.json", "b/z.yml"]


def test_a_named_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert report(tmp_path, CLASS, "class.txt").used == {"DeviceClass": 1}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + CLASS.encode())
    paths = [tmp_path / name for name in ("missing.yaml", "empty", "latin.yaml", "bom.yaml")]
    assert [[str(problem) for problem in each.problems] for each in load(paths).files] == [
        ["no such file or folder"],
        ["no manifests in this folder"],
        ["is not text in UTF-8"],
        [],
    ]


def test_files_that_can_not_be_read_are_apart_from_those_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    names = ("missing.yaml", "empty", "latin.yaml", "x" * 300, "a\0b")
    found = load([tmp_path / name for name in names])
    assert [each.is_readable for each in found.files] == [False, False, True, False, False]
    assert found.unreadable[2] == f"{tmp_path / ('x' * 300)}: cannot be read: File name too long"
    assert len(found.problems) == len(found.unreadable) + 1


TRULY_WRONG = {
    # the same key twice
    "dra-driver-memory/hack/ci/install_unpriv.tmpl.yaml",
    # versions that no current API server has
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims-1.yaml",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims.yaml",
    "dra-driver-nvidia-gpu/demo/specs/quickstart/v1beta1/gpu-test-vfiopci.yaml",
    "dra-driver-nvidia-gpu/demo/specs/selectors/claims.yaml",
    # pods with claims as they were before 1.31
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job-1.yaml",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job.yaml",
    "dra-driver-nvidia-gpu/demo/specs/selectors/pods.yaml",
    # no apiVersion, or `apiversion`
    "dra-example-driver/demo/examples/device-taints-tolerations/device-taint-pod-noschedule/4-pod-not-scheduled.yaml",
    "intel-resource-drivers-for-kubernetes/deployments/gpu/examples/pod-inline-aligned-gpus.yaml",
    # a template: the name of a pod has __INDEX__ in it
    "dra-driver-nvidia-gpu/tests/bats/specs/pods-shared-gpu.yaml",
    # a consumer without uid
    "dranet/examples/aws_eks_examples/gpu-efa/resource-claim.yaml",
}


@pytest.mark.skipif(not REAL.is_dir(), reason="manifests of real drivers are not here")
def test_manifests_of_real_drivers() -> None:
    """All are read; wrong are those known to be, and the API's own samples, which set every field there is."""
    files = {each.path.relative_to(REAL).as_posix(): each for each in load([REAL]).files}
    assert len(files) == len(list(REAL.rglob("*.yaml")))
    assert all(each.used or each.skipped or each.problems for each in files.values())
    samples = {name for name in files if name.startswith("api/testdata/")}
    assert {name for name, each in files.items() if each.problems} - samples == TRULY_WRONG
