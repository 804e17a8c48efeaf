"""The benchmark with scheduler_perf: workloads, profiles, pairs and the table."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loadtest.upstream_bench.pairs import figures, keep, kept, order
from loadtest.upstream_bench.profile import ProfileError, read_profile
from loadtest.upstream_bench.sampling import Series
from loadtest.upstream_bench.table import as_json, as_table
from loadtest.upstream_bench.turn import Turn, TurnError, turn
from loadtest.upstream_bench.workloads import FOLDER, Workload, selected, workloads

CONFIG = """
- name: Claims
  labels: [short]
  workloads:
  - name: fast
    labels: [integration-test]
    params: {measurePods: 10}
  - name: steady
    labels: [performance]
    params: {measurePods: 10, steadyState: true}
  - name: large
    params: {measurePods: 1000, steadyState: false}
"""


def found(folder: Path) -> list[Workload]:
    topic = folder / FOLDER / "topic"
    topic.mkdir(parents=True)
    (topic / "performance-config.yaml").write_text(CONFIG)
    return list(workloads(folder))


def test_workloads_are_those_of_the_files_of_scheduler_perf(tmp_path: Path) -> None:
    assert found(tmp_path) == [
        Workload(f"{FOLDER}/topic", "Claims", "fast", frozenset({"short", "integration-test"}), 10),
        Workload(f"{FOLDER}/topic", "Claims", "steady", frozenset({"short", "performance"}), 0),
        Workload(f"{FOLDER}/topic", "Claims", "large", frozenset({"short"}), 1000),
    ]


@pytest.mark.parametrize(
    ("patterns", "labels", "expected"),
    [
        ([], ["performance"], ["Claims/steady"]),
        ([], ["performance", "integration-test"], ["Claims/fast", "Claims/steady"]),
        (["Claims/l*"], [], ["Claims/large"]),
        (["*/steady", "*/fast"], ["performance"], ["Claims/fast", "Claims/steady"]),
    ],
)
def test_workloads_are_chosen_by_names_or_by_labels(
    tmp_path: Path, patterns: Sequence[str], labels: Sequence[str], expected: list[str]
) -> None:
    assert [each.title for each in selected(found(tmp_path), patterns, labels)] == expected


def test_a_pattern_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no workload is called Claims/slow"):
        selected(found(tmp_path), ["Claims/slow"], [])


def varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def profile_of(*samples: tuple[str, str, int], began: int = 10, seconds: int = 2) -> bytes:
    """A profile with a sample for each function, label and number of nanoseconds."""
    strings = ["", "part"]
    data = b""
    for place, (function, label, nanoseconds) in enumerate(samples, 1):
        strings += [function, label]
        labels = field(3, field(1, 1) + field(2, len(strings) - 1)) if label else b""
        data += field(5, field(1, place) + field(2, len(strings) - 2))
        data += field(4, field(1, place) + field(4, field(1, place)))
        data += field(2, field(1, varint(place)) + field(2, varint(1) + varint(nanoseconds)) + labels)
    data += b"".join(field(6, text.encode()) for text in strings)
    return gzip.compress(data + field(9, began * 10**9) + field(10, seconds * 10**9))


def test_a_profile_tells_the_parts_of_the_test_process_apart() -> None:
    found = read_profile(
        profile_of(
            ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne", "scheduler", 10**9),
            ("net/http.(*conn).serve", "scheduler", 10**8),
            ("k8s.io/apiserver/pkg/endpoints/handlers.GetResource", "", 2 * 10**9),
            ("runtime.gcBgMarkWorker", "", 3 * 10**8),
        )
    )
    assert [found.began, found.seconds] == pytest.approx([10, 2])
    assert found.parts == pytest.approx({"scheduler": 1.1, "API server": 2.0, "other": 0.3})


@pytest.mark.parametrize(
    "data", [b"", b"text", *(gzip.compress(each, mtime=0) for each in (b"", b"\xff", b"\x0f", b"\x1a\x01x"))]
)
def test_what_is_no_profile_is_refused(data: bytes) -> None:
    with pytest.raises(ProfileError, match="not a CPU profile"):
        read_profile(data)


def test_processor_time_between_samples_is_a_straight_line() -> None:
    series = Series([1.0, 2.0, 4.0], [10.0, 11.0, 15.0])
    assert series.between(1.5, 3.0) == pytest.approx(2.5)
    assert series.between(0.0, 9.0) == pytest.approx(5.0)
    assert Series().between(0.0, 1.0) == 0.0


def written(folder: Path, *items: object) -> Path:
    (folder / "x-cpu.prof").write_bytes(profile_of(("main.main", "scheduler", 10**9)))
    (folder / "x.json").write_text(json.dumps({"dataItems": items}))
    return folder


RATE = {"labels": {"Metric": "SchedulingThroughput"}, "data": {"Average": 50.0}}
NO_RATE = {"labels": {"Name": "x"}, "data": None}


@pytest.mark.parametrize(
    ("item", "pods", "expected"),
    [
        (RATE, 0, (100, 50.0)),
        (RATE, 120, (120, 50.0)),
        (NO_RATE, 10, (10, 5.0)),
        (NO_RATE, 0, (0, 0.0)),
    ],
)
def test_a_turn_is_read_from_what_scheduler_perf_wrote(
    tmp_path: Path, item: object, pods: int, expected: tuple[int, float]
) -> None:
    series = {"extender": Series([10.0, 12.0], [1.0, 1.5])}
    found = turn(written(tmp_path, item), series, pods)
    assert (found.pods, found.rate) == expected
    assert found.seconds == pytest.approx(2)
    assert found.processor == pytest.approx({"scheduler": 1.0, "extender": 0.5})


def test_a_turn_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TurnError, match="should have one profile and one file of results"):
        turn(tmp_path, {}, 10)


def test_each_subject_goes_first_in_every_second_pair() -> None:
    assert [order(pair)[0] for pair in range(4)] == ["in-tree", "dra-extender", "in-tree", "dra-extender"]


TURNS = [
    Turn(2.0, 100, 50.0, {"scheduler": 0.5, "extender": 0.2}),
    Turn(3.0, 100, 40.0, {"scheduler": 0.7, "extender": 0.1}),
    Turn(1.0, 100, 90.0, {"scheduler": 0.1, "extender": 0.3}, 0.5),
]


def test_figures_are_medians_and_processor_time_is_that_of_a_pod() -> None:
    found = figures(TURNS)
    assert (found.turns, found.rate, found.seconds) == (3, 50.0, 2.0)
    assert found.processor == pytest.approx({"scheduler": 5.0, "extender": 2.0})


def test_a_turn_is_kept_as_it_is(tmp_path: Path) -> None:
    keep(tmp_path / "0.json", TURNS[0])
    assert kept(tmp_path / "0.json") == TURNS[0]
    assert [file.name for file in tmp_path.iterdir()] == ["0.json"]


def test_the_table_divides_the_rate_by_that_of_the_plugin() -> None:
    lines = as_table(
        {"Claims/fast": {"in-tree": [Turn(2.0, 50, 25.0, {}, 1.25)], "dra-extender": TURNS}}, "Here."
    ).splitlines()
    assert lines[0] == "Here."
    assert lines[4:] == [
        "| Claims/fast | in-tree | 1 | 1.2 to 1.2 | 25 |  | 2.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 |",
        "| Claims/fast | dra-extender | 3 | 0.0 to 0.5 | 50 | 2.00 | 2.0 | 5.0 | 2.0 | 0.0 | 0.0 | 0.0 |",
    ]


def test_a_subject_without_turns_has_no_figures() -> None:
    lines = as_table({"Claims/fast": {"in-tree": [], "dra-extender": TURNS}}, "Here.").splitlines()
    assert lines[4] == "| Claims/fast | in-tree | 0 |  |  |  |  |  |  |  |  |  |"
    assert lines[5].startswith("| Claims/fast | dra-extender | 3 | 0.0 to 0.5 | 50 |  |")


def test_all_turns_are_in_the_file_for_programs() -> None:
    found = json.loads(as_json({"Claims/fast": {"in-tree": TURNS, "dra-extender": []}}))
    assert [each["rate"] for each in found["Claims/fast"]["in-tree"]] == [50.0, 40.0, 90.0]
