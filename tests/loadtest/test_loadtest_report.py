"""Results on disk, and the page that is made of them."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from loadtest.endtoend.__main__ import Keeper, main
from loadtest.endtoend.checker import AuditError, verdict
from loadtest.endtoend.figures import grouped
from loadtest.endtoend.files import FileError, read
from loadtest.endtoend.machine import mood
from loadtest.endtoend.plots import pictures
from loadtest.endtoend.processor import spent, used
from loadtest.endtoend.report import Report
from loadtest.endtoend.results import Results, Run
from loadtest.endtoend.thresholds import Thresholds
from tests.loadtest.measured import NOW, results, run, runs

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
