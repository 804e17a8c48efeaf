"""Writes docs/reference/upstream-suite.md from the kept results."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from tests.kit.places import ROOT
from tests.upstream_suite.campaign import LOGS, read
from tests.upstream_suite.known import PACKAGES, why_incomparable
from tests.upstream_suite.results import Result

PAGE: Final = ROOT / "docs" / "reference" / "upstream-suite.md"

_HEAD: Final = """\
# Kubernetes' own tests

Kubernetes tests DRA in `test/integration/dra`: an API server, controllers and a scheduler in one process. `make
test-upstream-suite` runs these tests as they are, once with the plugin and once with dra-extender in its place
([how](../testing.md#kubernetes-own-suites)), and writes this page.

A test is one without sub-tests. "(2)" means: it failed, and passed in its second try, alone; these tests have
deadlines, and the machine was busy. If a test can't be compared, the last column says why.
"""

_ALL: Final = "TestDRA/"

Found = Mapping[str, Mapping[str, Result]]


def write_page(logs: Path = LOGS, page: Path = PAGE) -> None:
    """Write the page with each version that has results; a version that has none now keeps its section."""
    versions = {folder.name: kept(folder) for folder in sorted(logs.glob("v*"))}
    before = sections(page.read_text()) if page.exists() else {}
    new = {version: section(version, found) for version, found in versions.items() if any(found.values())}
    page.write_text("\n".join([_HEAD, *(text for _, text in sorted({**before, **new}.items()))]))


def sections(page: str) -> dict[str, str]:
    """The sections of a page, by version."""
    parts = page.split("\n## v")[1:]
    return {f"v{part.partition(chr(10))[0]}": f"## v{part}".rstrip() + "\n" for part in parts}


def kept(folder: Path) -> dict[str, dict[str, Result]]:
    """The results of a version, by subject."""
    found: dict[str, dict[str, Result]] = {}
    for subject in ("in-tree", "dra-extender"):
        files = (folder / subject / (package or "dra") / "results.json" for package in PACKAGES)
        found[subject] = {name: each for file in files if file.exists() for name, each in read(file).items()}
    return found


def section(version: str, found: Found) -> str:
    """The section of a version, in Markdown."""
    return "\n".join(_lines(version, found))


def _lines(version: str, found: Found) -> Iterator[str]:
    ours, theirs = found["dra-extender"], found["in-tree"]
    names = list(dict.fromkeys((*theirs, *ours)))
    yield f"## {version}"
    yield ""
    apart = sum(bool(why_incomparable(name, version)) for name in names)
    passed = f"{_passed(theirs)} pass in-tree, {_passed(ours)} with dra-extender"
    yield f"{len(names)} tests: {passed}; {apart} can't be compared."
    yield ""
    told = [name for name in names if not _is_plain(name, version, found)]
    if told:
        yield "| test | in-tree | dra-extender | |"
        yield "|---|---|---|---|"
    rows: dict[str, list[str]] = {}
    for name in told:
        cells = _cell(theirs.get(name)), _cell(ours.get(name)), why_incomparable(name, version)
        rows.setdefault(" | ".join(cells), []).append(f"`{name.removeprefix(_ALL)}`")
    for cells_of_all, tests in rows.items():
        yield f"| {', '.join(tests)} | {cells_of_all} |"
    yield from _plain_lines({name.removeprefix(_ALL): ours[name].tries for name in names if name not in told})
    yield ""


def _is_plain(name: str, version: str, found: Found) -> bool:
    """Whether a test can be compared and has passed with both, in-tree at its first try."""
    theirs, ours = (found[subject].get(name) for subject in ("in-tree", "dra-extender"))
    passed = theirs is not None and ours is not None and theirs.outcome == ours.outcome == "passed"
    return passed and theirs is not None and theirs.tries == 1 and not why_incomparable(name, version)


def _plain_lines(tries: Mapping[str, int]) -> Iterator[str]:
    """How many such tests there are, by the first part of their names."""
    groups: dict[str, list[int]] = {}
    for name, number in tries.items():
        groups.setdefault(name.partition("/")[0], []).append(number)
    if groups:
        yield ""
        counts = ", ".join(f"{first} {_count(numbers)}" for first, numbers in groups.items())
        yield from wrap(f"Passed with both: {counts}.", 120, break_on_hyphens=False)


def _count(tries: Sequence[int]) -> str:
    again = sum(number > 1 for number in tries)
    return f"{len(tries)} ({again} not at the first try)" if again else str(len(tries))


def _passed(found: Mapping[str, Result]) -> int:
    return sum(result.outcome == "passed" for result in found.values())


def _cell(result: Result | None) -> str:
    if result is None:
        return "not run"
    return result.outcome + (f" ({result.tries})" if result.tries > 1 else "")
