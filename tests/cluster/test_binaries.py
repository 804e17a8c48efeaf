"""Where the control plane's programs come from, and what is said where there is nothing to run."""

from pathlib import Path

import pytest

from tests.kit.controlplane.binaries import COMPONENTS, RELEASES, USUAL, BinariesError, find_binaries


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


def put_go(folder: Path) -> Path:
    """A stand-in for go: it writes its output, which is its command line. Returns a file with a line for each run."""
    runs = folder / "runs"
    (folder / "go").write_text(
        f'#!/bin/sh\nall="$*"\necho run >>{runs}\nwhile [ "$1" != -o ]; do shift; done\necho "$all" >"$2"\n'
    )
    (folder / "go").chmod(0o755)
    return runs


def test_what_is_built_is_kept(tmp_path: Path) -> None:
    runs = put_go(tmp_path)
    first, second = (find_binaries({"PATH": str(tmp_path)}, tmp_path / "cache") for _ in range(2))
    assert first == second
    assert first.command("kube-scheduler")[1:] == ("kube-scheduler",)
    assert runs.read_text() == "run\n"


def test_builds_of_all_versions_are_kept_side_by_side(tmp_path: Path) -> None:
    runs = put_go(tmp_path)
    for version in (*RELEASES, *RELEASES):
        found = find_binaries({"PATH": str(tmp_path), "KUBERNETES": version}, tmp_path / "cache")
        assert f"gitVersion=v{version}." in Path(found.command("etcd")[0]).read_text()
    assert len(runs.read_text().splitlines()) == len(RELEASES)


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES": ""}], ids=["unset", "empty"])
def test_one_version_is_built_by_default(environ: dict[str, str], tmp_path: Path) -> None:
    put_go(tmp_path)
    found = find_binaries({"PATH": str(tmp_path), **environ}, tmp_path / "cache")
    assert f"gitVersion=v{USUAL}." in Path(found.command("etcd")[0]).read_text()


def test_an_unknown_version_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match=r'KUBERNETES="1.33" is none of the versions 1.34, 1.35, 1.36, 1.37'):
        find_binaries({"PATH": str(tmp_path), "KUBERNETES": "1.33"}, tmp_path)


def test_a_version_beside_assets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match="unset one of them"):
        find_binaries({"KUBEBUILDER_ASSETS": str(tmp_path), "KUBERNETES": "1.36"})
