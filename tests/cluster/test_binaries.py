"""Where the control plane's programs come from, and what is said where there is nothing to run."""

from pathlib import Path

import pytest

from tests.kit.controlplane.binaries import COMPONENTS, BinariesError, find_binaries


def put_programs(folder: Path, *names: str) -> None:
    for name in names:
        program = folder / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


def test_assets_are_used_as_they_are(tmp_path: Path) -> None:
    put_programs(tmp_path, *COMPONENTS)
    found = find_binaries({"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert [found.command(name) for name in COMPONENTS] == [(str(tmp_path / name),) for name in COMPONENTS]


def test_assets_that_lack_programs_are_refused_by_name(tmp_path: Path) -> None:
    put_programs(tmp_path, "etcd", "kube-apiserver")
    with pytest.raises(BinariesError, match="has no kube-controller-manager, kube-scheduler; unset it"):
        find_binaries({"KUBEBUILDER_ASSETS": str(tmp_path)})


def test_without_go_and_assets_it_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match=r"put go \(1.26 or later\) on PATH, or set KUBEBUILDER_ASSETS"):
        find_binaries({"PATH": str(tmp_path)}, tmp_path)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(BinariesError, match="exit status 3"):
        find_binaries({"PATH": str(tmp_path)}, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_built_is_kept(tmp_path: Path) -> None:
    """A stand-in for go writes its output and counts its runs."""
    count = tmp_path / "runs"
    (tmp_path / "go").write_text(
        f'#!/bin/sh\necho run >>{count}\nwhile [ "$1" != -o ]; do shift; done\necho program >"$2"\n'
    )
    (tmp_path / "go").chmod(0o755)
    first, second = (find_binaries({"PATH": str(tmp_path)}, tmp_path / "cache") for _ in range(2))
    assert first == second
    assert Path(first.command("etcd")[0]).read_text() == "program\n"
    assert first.command("kube-scheduler")[1:] == ("kube-scheduler",)
    assert count.read_text() == "run\n"
