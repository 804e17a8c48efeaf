"""Results on disk, and the page that is made of them."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from loadtest.endtoend.__main__ import Keeper, main
from loadtest.endtoend.checker import AuditError, verdict
from loadtest.endtoend.figures import findings, grouped, processor_table, rates_table
from loadtest.endtoend.files import FileError, read
from loadtest.endtoend.machine import mood
from loadtest.endtoend.plots import pictures
from loadtest.endtoend.processor import spent, used
from loadtest.endtoend.report import Report
from loadtest.endtoend.results import Results, Run
from loadtest.endtoend.sightings import Sightings
from loadtest.endtoend.thresholds import SHIPPED, Threshold, Thresholds, verdict_table, verdicts
from loadtest.endtoend.workload import FOLDER, named
from tests.kit.clusters import pod
from tests.loadtest.measured import MOOD, NOW, results, run, runs

GOOD = results(*runs("claims", in_tree=[40, 44], ours=[100, 104], idle=[101]), *runs("none", ours=[10], idle=[10]))


class Page(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def kept(folder: Path, measured: Results, name: str = "results.json") -> str:
    path = folder / name
    measured.write(path)
    return str(path)


# --- on disk


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    assert read(Results, Path(kept(tmp_path, GOOD))) == GOOD


def test_each_run_is_on_disk_when_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    keeper = Keeper(path, results())
    for number, each in enumerate(GOOD.runs):
        assert len(read(Results, path).runs) == number
        keeper.add(each)
    assert read(Results, path) == GOOD
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "line 1: "), ("[]", "expected one document"), ('{"runs": 5}', "runs: "), ("", "expected one document")],
)
def test_what_are_no_results(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        read(Results, path)
    assert problem in str(caught.value)


# --- the page


def test_a_page_has_all_in_itself() -> None:
    report = Report.of([GOOD], Thresholds())
    page = Page(report.page(report.pictures()))
    assert page.tags.count("img") == 3
    assert {link.partition(",")[0] for link in page.links} == {"data:image/png;base64"}
    for shown in ("102.0 (100.0 to 104.0)", "2.43x", "Abacus 9000", "abc123", "one claim"):
        assert shown in page.text


def test_what_was_wrong_is_on_the_page_as_text() -> None:
    wrong = run("claims", "idle", 5, findings=("pod <b>a</b> & others have no node",))
    page = Page(Report.of([results(wrong)], Thresholds()).page({}))
    assert "pod <b>a</b> & others have no node" in page.text
    assert "b" not in page.tags


def test_pictures_are_of_runs_that_count() -> None:
    drawn = pictures(grouped([GOOD]))
    assert set(drawn) == {"rates", "bound", "processor"}
    assert {png[:8] for png in drawn.values()} == {b"\x89PNG\r\n\x1a\n"}
    assert pictures(grouped([results(run("claims", "idle", 5, findings=("wrong",)))])) == {}


# --- the command line


def report(folder: Path, *arguments: str) -> int:
    return main(["report", *arguments, "--html", str(folder / "pages" / "page.html")])


def test_several_results_make_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    larger = results(*runs("claims", nodes=5000, in_tree=[10], ours=[70], idle=[71]))
    assert report(tmp_path, kept(tmp_path, GOOD), kept(tmp_path, larger, "larger.json")) == 0
    printed = capsys.readouterr().out
    assert "claims [1]" in printed
    assert "claims [2]" in printed
    written = sorted(each.name for each in (tmp_path / "pages").iterdir())
    assert written == ["page-bound.png", "page-processor.png", "page-rates.png", "page.html"]


@pytest.mark.parametrize(
    ("measured", "options", "code"),
    [
        (runs("claims", in_tree=[40], ours=[100], idle=[100]), [], 0),
        (runs("claims", in_tree=[60], ours=[100], idle=[100]), [], 1),
        (runs("claims", in_tree=[60], ours=[100], idle=[100]), ["--no-thresholds"], 0),
        (runs("claims", ours=[100]), [], 0),
        ([run("claims", "idle", 5, findings=("wrong",))], ["--no-thresholds"], 1),
    ],
)
def test_a_threshold_missed_or_anything_wrong_is_exit_code_1(
    tmp_path: Path, measured: list[Run], options: list[str], code: int
) -> None:
    assert report(tmp_path, kept(tmp_path, results(*measured)), *options) == code


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--workloads", "clams"], 'there is no workload "clams"'),
        (["--workloads", "claims", "--nodes", "20"], "1,000 pods need 1,000 devices"),
        (["--workloads", "claims", "--thresholds", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["report", "nowhere.json", "--html", "x.html"], "nowhere.json: No such file"),
    ],
)
def test_bad_input_is_told_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert problem in told


def test_two_workloads_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "claims.yaml"
    other.write_text("about: another\n")
    assert main(["--workloads", "claims", str(other)]) == 2
    assert f'{other}: there is another workload "claims"' in capsys.readouterr().err


# --- judging and measuring


def test_what_the_audit_has_printed() -> None:
    found: dict[str, Any] = {"rule": "device held twice", "claims": ["ns/a", "ns/b"], "device": None, "message": "both"}
    assert verdict(0, b"[]", b"") == []
    assert verdict(1, str([found]).replace("'", '"').replace("None", "null").encode(), b"") == [
        "device held twice: claim ns/a, ns/b: both"
    ]
    with pytest.raises(AuditError, match="exit code 2: no API server"):
        verdict(2, b"", b"no API server\n")


def test_processor_time_is_what_the_system_counts(tmp_path: Path) -> None:
    def now(user: int, system: int) -> dict[str, float]:
        stat = tmp_path / "7" / "stat"
        stat.parent.mkdir(exist_ok=True)
        stat.write_text(f"7 (a (b) c) S {' '.join('0' for _ in range(10))} {user} {system} 0 0\n")
        return used({"etcd": 7}, tmp_path)

    before, after = now(100, 50), now(250, 100)
    assert spent(before, after)["etcd"] == pytest.approx(2 * before["etcd"] * 2 / 3, abs=0.01)
    with pytest.raises(OSError, match="8"):
        used({"etcd": 8}, tmp_path)


def test_a_mood_is_of_now() -> None:
    found = mood(NOW)
    assert found.at == NOW
    assert found.calibration > 0


# From runs to figures: rates, medians, ratios, and whether thresholds are met.


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/20 nodes are available"}


def seen(*sightings: tuple[str, str, float]) -> Sightings:
    found = Sightings(frozenset({"a", "b", "c"}))
    for name, on, now in sightings:
        found.see(pod(name, on=on), now)
    return found


@pytest.mark.parametrize(
    ("sightings", "at", "rate"),
    [
        ([], (), 0.0),
        ([("a", "n", 5.0)], (2.0,), 0.0),
        ([("a", "n", 5.0), ("b", "n", 5.5)], (2.0, 2.5), 2.0),
        ([("a", "n", 5.0), ("b", "n", 5.5), ("b", "n", 9.0)], (2.0, 2.5), 2.0),
        ([("a", "n", 5.0), ("b", "", 5.1), ("x", "n", 5.2), ("b", "n", 5.5), ("c", "n", 6.0)], (2.0, 2.5, 3.0), 2.0),
    ],
)
def test_a_rate_is_from_the_first_binding_to_the_last(
    sightings: Sequence[tuple[str, str, float]], at: tuple[float, ...], rate: float
) -> None:
    bound = seen(*sightings).since(3.0)
    assert bound == at
    given = Run(workload="w", nodes=1, pods=3, subject="idle", repetition=1, before=MOOD, bound_at=bound)
    assert given.rate == rate


def test_a_pod_that_was_bound_twice_is_told() -> None:
    assert seen(("a", "n", 1.0), ("a", "n", 2.0)).moved == []
    assert seen(("a", "n", 1.0), ("a", "m", 2.0)).moved == ["pod a was bound to node n, and then to node m"]


def test_pods_that_are_rejected_are_progress_once_each() -> None:
    found = seen(("a", "n", 1.0), ("nowhere", "", 1.0), ("b", "", 1.5))
    assert found.progress == 1
    for name in ("nowhere", "nowhere", "b"):
        found.see(pod(name) | {"status": {"conditions": [UNSCHEDULABLE]}}, 2.0)
    assert found.progress == 3
    assert list(found.at) == ["a"]


def test_medians_ranges_and_ratios_in_the_table() -> None:
    measured = results(*runs("claims", in_tree=[50, 40, 60], ours=[100], idle=[200]), *runs("crowded", ours=[90]))
    assert rates_table(grouped([measured])).rows == [
        ("claims", "500", "5", "50.0 (40.0 to 60.0)", "100.0", "200.0", "2.00x", "50 %"),
        ("crowded", "500", "5", "-", "90.0", "-", "-", "-"),
    ]


def test_processor_time_for_a_pod_is_in_milliseconds() -> None:
    (group,) = grouped([results(*runs("claims", ours=[1, 2]))])
    assert processor_table([group]).rows == [("claims", "500", "5", "-", "40.0 (40.0 to 40.0)", "-")]
    parts = group.processor_parts("dra-extender")
    assert {name: round(each, 6) for name, each in parts.items()} == {"kube-apiserver": 30, "extender": 10}


def test_groups_are_by_workload_size_and_pods() -> None:
    measured = results(
        *runs("none", ours=[1]),
        *runs("claims", nodes=2000, ours=[1]),
        *runs("claims", nodes=500, ours=[1]),
        *runs("claims", nodes=500, pods=3, ours=[1]),
    )
    found = [str(group) for group in grouped([measured])]
    assert found == [
        "none, 500 nodes, 5 pods",
        "claims, 500 nodes, 3 pods",
        "claims, 500 nodes, 5 pods",
        "claims, 2,000 nodes, 5 pods",
    ]


def test_several_results_stay_apart() -> None:
    first, second = results(*runs("claims", ours=[10])), results(*runs("claims", ours=[30]))
    groups = grouped([first, second])
    assert [(str(group), [round(rate) for rate in group.rates("dra-extender")]) for group in groups] == [
        ("claims, 500 nodes, 5 pods [1]", [10]),
        ("claims, 500 nodes, 5 pods [2]", [30]),
    ]


def test_a_run_with_anything_wrong_does_not_count_and_is_told() -> None:
    wrong = run("claims", "dra-extender", 100, findings=("a device twice",))
    groups = grouped([results(wrong, *runs("claims", idle=[100]))])
    assert rates_table(groups).rows[0][3:] == ("-", "-", "100.0", "-", "-")
    assert list(findings(groups)) == ["claims, 500 nodes, 5 pods, dra-extender, run 1: a device twice"]


# --- thresholds

GOALS = Thresholds(
    thresholds=(
        Threshold(workload="claims", nodes=500, to="in-tree", at_least=2.2),
        Threshold(workload="claims", nodes=2000, to="in-tree", at_least=4),
        Threshold(workload="claims", to="idle", at_least=0.85),
        Threshold(workload="crowded", to="undisturbed", at_least=0.8),
    )
)


def judged(*measured: Run) -> list[tuple[str, ...]]:
    return [tuple(row[1:]) for row in verdict_table(verdicts(GOALS, grouped([results(*measured)]))).rows]


def test_what_was_measured_is_met_or_missed() -> None:
    assert judged(*runs("claims", in_tree=[40], ours=[100], idle=[200]), *runs("crowded", ours=[70])) == [
        ("in-tree", "2.50x", "2.20x", "met"),
        ("idle", "50 %", "85 %", "MISSED"),
        ("claims, undisturbed", "70 %", "80 %", "MISSED"),
    ]


def test_each_size_has_its_thresholds() -> None:
    assert judged(*runs("claims", nodes=2000, in_tree=[40], ours=[100], idle=[110])) == [
        ("in-tree", "2.50x", "4.00x", "MISSED"),
        ("idle", "91 %", "85 %", "met"),
    ]
    assert judged(*runs("claims", nodes=100, ours=[100], idle=[100])) == [("idle", "100 %", "85 %", "met")]


def test_what_was_not_measured_is_neither() -> None:
    assert judged(*runs("claims", ours=[100])) == [
        ("in-tree", "-", "2.20x", "not measured"),
        ("idle", "-", "85 %", "not measured"),
    ]


@pytest.mark.parametrize(("nodes", "pods"), [(2000, 5), (500, 3)])
def test_undisturbed_is_with_as_many_nodes_and_pods_in_the_same_results(nodes: int, pods: int) -> None:
    crowded, elsewhere = runs("crowded", ours=[90]), runs("claims", nodes=nodes, pods=pods, ours=[100])
    (mine,) = (row for row in judged(*elsewhere, *crowded) if row[0] == "claims, undisturbed")
    assert mine == ("claims, undisturbed", "-", "80 %", "not measured")
    groups = grouped([results(*crowded), results(*runs("claims", ours=[100]))])
    assert [each.word for each in verdicts(GOALS, groups) if each.group.workload == "crowded"] == ["not measured"]


def test_the_shipped_thresholds_can_be_measured() -> None:
    shipped = read(Thresholds, SHIPPED).thresholds
    names = [path.stem for path in FOLDER.glob("*.yaml")]
    workloads = dict(each for name in names for each in named(name)[1].by_transport(name).items())
    for each in shipped:
        workload = workloads[each.workload]
        assert workload.undisturbed if each.to == "undisturbed" else each.to in workload.subjects


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{workload: a, to: idle, atLest: 1}", 'thresholds.0.atLest: unknown key, did you mean "atLeast"?'),
        ("{workload: a, to: idle, atLeast: 0}", "thresholds.0.atLeast: expected more than 0, not 0"),
        ("{workload: a, to: peer, atLeast: 1}", "thresholds.0.to: expected"),
        ("{workload: a, to: idle}", "thresholds.0.atLeast: is missing"),
    ],
)
def test_thresholds_that_are_none(tmp_path: Path, entry: str, problem: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"thresholds: [{entry}]\n")
    with pytest.raises(FileError) as caught:
        read(Thresholds, path)
    assert problem in str(caught.value)
