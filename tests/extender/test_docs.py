"""docs/: what it lists is what there is."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from typer.main import get_command

from allocator import Unsatisfiable
from allocator.checks.table import CAUSES
from allocator.outcome import Unserved
from allocator.reason import Cause
from extender.autoscaler.scale_up.estimate import AT_LIMIT, NO_GROUPS
from extender.autoscaler.verbs import AUTOSCALER_VERBS
from extender.config.sources import keys, variable
from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from extender.faces.http.endpoints.scheduler_verbs import VERBS
from extender.framework.cycle import kept_elsewhere
from extender.framework.decisions.verdict import OUT_OF_TIME, UNKNOWN_NODE
from extender.framework.held_devices import WAITING
from tests.extender.exported import Exported, exported
from tests.extender.pair_scenes import FORMS
from tests.extender.test_pairs import APART as NEVER_ON_ONE_DEVICE
from tests.kit.clusters import Cluster, client_of
from tests.kit.places import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OTHER_PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
    "tests/extender/pairs.md",
)
REFERENCE = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_every_reason_of_devices_is_explained(cause: Cause) -> None:
    reason = Unserved("demo/x", "gpu", cause, detail="resource.kubernetes.io/pcieRoot")
    assert f"`{Unsatisfiable((reason,), steps=0).reason.in_words()}`" in REFERENCE


def test_reasons_of_devices_are_listed_in_their_order() -> None:
    reasons = (Unserved("demo/x", "gpu", cause, detail="resource.kubernetes.io/pcieRoot") for cause in CAUSES)
    places = [REFERENCE.index(f"`{Unsatisfiable((reason,), steps=0).reason.in_words()}`") for reason in reasons]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "reason",
    [*(each.in_words() for each in (UNKNOWN_NODE, OUT_OF_TIME, WAITING, kept_elsewhere("gpu-7"))), AT_LIMIT, NO_GROUPS],
)
def test_every_reason_of_nodes_is_explained(reason: str) -> None:
    assert f"`{reason}`" in REFERENCE


@pytest.mark.parametrize("verb", [each.name for each in VERBS])
def test_every_verb_is_described(verb: str) -> None:
    assert re.search(rf"^## {verb}$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("verb", [each.name for each in AUTOSCALER_VERBS])
def test_every_verb_for_autoscalers_is_described(verb: str) -> None:
    assert re.search(rf"^### {verb}$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("path", [path for path, _ in keys()], ids=".".join)
def test_every_setting_is_listed(path: tuple[str, ...]) -> None:
    assert f"| `{'.'.join(path)}` | `{variable(path)}` |" in REFERENCE


def test_every_command_is_listed() -> None:
    listed = set(re.findall(r"^\| `dra-extender ([a-z-]+)", REFERENCE, re.MULTILINE))
    assert listed == set(getattr(get_command(app), "commands", ()))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page can name, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        *(ROOT / name for name in OTHER_PAGES),
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_linked_files_and_headings_exist(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    for file, _, heading in (link.partition("#") for link in links):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not heading or heading in anchors(target), heading


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_named_files_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:\.?[\w-]+/)+[\w-]+\.(?:py|yaml|json|txt))`", page.read_text()))
    assert {name for name in named if not (ROOT / name).exists() and not (ROOT / "extender" / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_each_table_begins_with_a_header(page: Path) -> None:
    lines = ["", *page.read_text().splitlines(), ""]
    first = [n for n, line in enumerate(lines) if line.startswith("|") and not lines[n - 1].startswith("|")]
    assert [lines[n] for n in first if not re.fullmatch(r"\|(-+\|)+", lines[n + 1])] == []


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in PAGES} - {"README.md"}
    assert pages == {link for link in re.findall(r"\]\(([^)#]+)", index) if not link.startswith("..")}


PROGRAMS = re.compile(
    r"\b(Karpenter|Cluster\s+Autoscaler|Kueue|Prometheus|Grafana|OpenTelemetry|[Hh]elm|kustom\w+|krew|cert-manager|containerd"
    r"|[Dd]ocker|descheduler)\b"
)
"""What others run beside dra-extender, or install it with."""

NEIGHBOURS = (DOCS / "reference" / "neighbours.md").read_text()


@pytest.mark.parametrize("page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_that_names_another_program_links_what_was_run_of_it(page: Path) -> None:
    text = page.read_text()
    named = {" ".join(name.split()) for name in PROGRAMS.findall(text)}
    assert not named or "](../reference/neighbours.md" in text
    tables = [line.lower() for line in NEIGHBOURS.splitlines() if line.startswith("|")]
    of_kustomize = {name for name in named if name.startswith("kustom")}
    names = {name.lower() for name in named - of_kustomize} | ({"kustomize"} if of_kustomize else set())
    assert {name for name in names if not any(name in line for line in tables)} == set()


THREATS = (DOCS / "threats.md").read_text()
TESTS = {
    name
    for path in (Path(__file__).parents[1]).rglob("test_*.py")
    for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


ROWS = [
    row
    for row in re.findall(r"^\|(.*)\|$", THREATS, re.MULTILINE)
    if not set(row) <= set("|-") and not row.strip().endswith("shown by")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.strip()[:40])
def test_every_threat_has_tests_that_there_are(row: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", row.rsplit("|", maxsplit=1)[-1]))
    assert named
    assert named <= TESTS


EACH_WAY = "each way"


def pairs(title: str, cell: str) -> set[frozenset[str]]:
    """The pairs of capabilities that a row of a section of `pairs.md` is about."""
    if title == EACH_WAY:
        first, _, second = cell.partition(" with ")
        return {frozenset((first, second))} if second else {*map(frozenset, combinations(FORMS, 2))} - APART
    each, _, exceptions = cell.partition(" but ")
    names = set(FORMS) - set(exceptions.split(", ")) if each == EACH_WAY else set(cell.split(", "))
    return {frozenset((title, name)) for name in names}


APART = {frozenset(pair) for pair in NEVER_ON_ONE_DEVICE}
SECTIONS = re.findall(
    r"^## (.*?)\n(.*?)(?=^## |\Z)", (Path(__file__).parent / "pairs.md").read_text(), re.MULTILINE | re.DOTALL
)
PAIRS = [
    (title, *row)
    for title, body in SECTIONS
    for row in re.findall(r"^\| (.*?) \| (.*?) \|$", body, re.MULTILINE)
    if row[0] != "with"
]


def test_every_pair_of_capabilities_stands_there() -> None:
    found = {pair for title, cell, _ in PAIRS for pair in pairs(title, cell)}
    capabilities = {name for pair in found for name in pair}
    assert set(FORMS) < capabilities
    assert found == set(map(frozenset, combinations(capabilities, 2)))


def test_a_pair_that_no_test_has_stands_there_once() -> None:
    found = [pair for title, cell, _ in PAIRS for pair in pairs(title, cell)]
    alone = [pair for title, cell, shown in PAIRS if "`test_" not in shown for pair in pairs(title, cell)]
    assert alone
    assert {tuple(pair): found.count(pair) for pair in alone} == {tuple(pair): 1 for pair in alone}


@pytest.mark.parametrize(("title", "cell", "shown"), PAIRS)
def test_every_pair_has_tests_that_there_are_or_a_reason(title: str, cell: str, shown: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", shown))
    assert named <= TESTS, (title, cell)
    assert named or re.match(r"(cannot meet|not covered): \S+ \S+", shown), (title, cell)


METRICS = exported()


@pytest.mark.parametrize(
    "metric",
    [each for each in METRICS.values() if each.name.startswith(("dra_extender_", "cci_"))],
    ids=lambda each: each.name,
)
def test_every_metric_is_explained_with_its_labels(metric: Exported) -> None:
    (labels,) = re.findall(rf"^\| `{metric.name}` \|([^|]*)\|", REFERENCE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", labels)) == metric.labels


def test_no_metric_is_explained_that_there_is_not() -> None:
    mentioned = set(re.findall(r"`((?:dra_extender|cci|process)_[a-z_]+)`", REFERENCE))
    assert mentioned <= set(METRICS)


def test_every_alert_has_its_answer() -> None:
    rules = (ROOT / "deploy" / "monitoring" / "prometheus-rule.yaml").read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    runbook = (DOCS / "how-to" / "runbook.md").read_text()
    assert alerts == re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
    assert [f"docs/how-to/runbook.md#{alert.lower()}" for alert in alerts] == re.findall(r"runbook_url: (\S+)", rules)
    for section in runbook.split("\n## ")[1:]:
        assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Symptom", "Check", "Fix"], section


@pytest.mark.parametrize("code", [OK, FOUND_PROBLEMS, USAGE])
def test_every_exit_code_is_explained(code: int) -> None:
    assert re.search(rf"^\| {code} \| ", REFERENCE, re.MULTILINE)


async def test_every_table_is_described_with_what_narrows_it() -> None:
    async with client_of(Cluster.of().app()) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    tables = {path: each["get"] for path, each in paths.items() if "views" in each.get("get", {}).get("tags", ())}
    for path, operation in tables.items():
        (filters,) = re.findall(rf"^\| `{path}` \|[^|]*\|([^|]*)\|$", REFERENCE, re.MULTILINE)
        narrowing = {each["name"] for each in operation["parameters"]} - {"limit", "continue", "format"}
        assert set(re.findall(r"`(\w+)`", filters)) == narrowing
