"""The parts of `make release` that need no network; the target itself builds, compares and tries everything."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.tools.version import __version__
from tests.kit.places import ROOT
from tests.release.archives import checksums, differences, pack
from tests.release.trying import EXTRAS
from tests.release.version import disagreements, version_of


def test_equal_files_give_equal_archives_whenever_and_wherever_they_are_packed(tmp_path: Path) -> None:
    for name, files in (("one", ("a", "sub/b")), ("two", ("sub/b", "a"))):
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)
        pack(tmp_path / f"{name}.tar.gz", tmp_path / name, ["sub", "a"], prefix="x-1", epoch=1_700_000_000)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as found:
        assert [(each.name, each.mtime) for each in found] == [("x-1/a", 1_700_000_000), ("x-1/sub/b", 1_700_000_000)]


def test_files_that_differ_or_are_missing_are_named(tmp_path: Path) -> None:
    for folder, name, text in (("a", "same", "1"), ("b", "same", "1"), ("a", "other", "1"), ("b", "other", "2")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    (tmp_path / "a" / "only").write_text("1")
    assert differences(tmp_path / "a", tmp_path / "b") == ["only", "other"]
    assert checksums(tmp_path / "b").splitlines()[1].endswith("  same")


def test_the_version_of_the_code_is_that_of_a_release() -> None:
    assert version_of(ROOT) == __version__


@pytest.mark.parametrize(
    ("tag", "changelog", "told"),
    [
        ("", "## [Unreleased]\n", []),
        ("v0.1.0", "## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n", []),
        ("v0.1.0", "## [Unreleased]\n", ["CHANGELOG.md: it has no section [0.1.0] with a date"]),
        ("v0.1.0", "## [0.1.0]\n", ["CHANGELOG.md: it has no section [0.1.0] with a date"]),
        (
            "v0.2.0",
            "## [0.1.0] - 2026-12-01\n",
            ["the tag v0.2.0 is not v0.1.0, the version in extender/tools/version.py"],
        ),
    ],
)
def test_a_release_needs_its_tag_and_its_section_of_the_changelog(
    tmp_path: Path, tag: str, changelog: str, told: list[str]
) -> None:
    sources(tmp_path, changelog, chart="0.1.0")
    assert list(disagreements(tmp_path, tag)) == told


def test_a_preview_needs_a_chart_of_its_version_too(tmp_path: Path) -> None:
    sources(tmp_path, "", chart="0.0.9")
    assert list(disagreements(tmp_path, "")) == [
        "deploy/chart/Chart.yaml: version 0.0.9 is not 0.1.0",
        "deploy/chart/Chart.yaml: appVersion 0.0.9 is not 0.1.0",
    ]


def sources(root: Path, changelog: str, *, chart: str) -> None:
    for name, text in (
        ("extender/tools/version.py", '__version__ = "0.1.0"\n'),
        ("deploy/chart/Chart.yaml", f'version: {chart}\nappVersion: "{chart}"\n'),
        ("CHANGELOG.md", changelog),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def shipped_texts() -> Iterator[str]:
    """What people read: pages, and the texts of the programs and of what is deployed."""
    yield (ROOT / "README.md").read_text()
    for folder, pattern in (("docs", "*.md"), ("extender", "*.py"), ("config", "*"), ("deploy", "*")):
        for each in sorted((ROOT / folder).rglob(pattern)):
            if each.is_file() and each.suffix != ".pyc" and not each.name.startswith("Dockerfile"):
                yield each.read_text()


def test_everything_installs_from_a_clone_what_a_release_tries_there() -> None:
    """Nothing is published yet."""
    said = [each for text in shipped_texts() for each in re.findall(r"pip install (\S+)", text)]
    installs = [each for each in said if each != "'.[{extra}]'"]
    assert len(said) - len(installs) == 1, "the programs say it in one place (extender/tools/extras.py)"
    named = [re.fullmatch(r"'\.\[([a-z,]+)\]'`?[).:;,]*", each) for each in installs]
    assert [install for install, found in zip(installs, named, strict=True) if not found] == []
    assert {extra for found in named if found for extra in found[1].split(",")} <= set(EXTRAS)
