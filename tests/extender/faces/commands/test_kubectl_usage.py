"""`kubectl dra usage` and `dra-extender usage`: usage of a service, as a table, JSON, names or CSV."""

import csv
import io
import json
from collections.abc import Iterator

import pytest
import yaml
from typer.testing import CliRunner

from extender.faces.commands.main import app, kubectl_app
from tests.console.service import over_manifests
from tests.kit.clusters import DRIVER, GPU, claim, local_slice, node, pod
from tests.kit.waiting import wait_until

WORLD = [
    GPU,
    node("a"),
    local_slice("a", devices=4, attributes={"model": {"string": "h100"}}),
    claim("one", allocated=["a/gpu-0"], at="a"),
    claim("wanted"),
    pod("p", "wanted"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that has seen a device held for a moment."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "world.yaml").write_text(yaml.safe_dump_all(WORLD))
    with over_manifests(folder, folder / "world.yaml") as served:
        wait_until(lambda: "ns" in called("-A", "--server", served.url)[1], "a row of the namespace", within=60)
        yield served.url


def called(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(kubectl_app, ["usage", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_table_has_a_row_for_each_name_and_says_since_when_it_knows(url: str) -> None:
    code, text, messages = called("--by", "model", "--server", url)
    heading, row = text.splitlines()
    assert (code, heading.split()) == (0, ["MODEL", "DRIVER", "DEVICES", "OF", "SHARE", "PEAK", "HOURS"])
    assert row.split()[:6] == ["h100", DRIVER, "1.0", "4.0", "25%", "1.0"]
    assert "when this replica began to watch" in messages


def test_rows_are_of_the_namespace_of_the_command(url: str) -> None:
    assert called("-n", "ns", "--server", url)[1].splitlines()[1].split()[:2] == ["ns", DRIVER]
    code, text, messages = called("-n", "nss", "--server", url)
    assert (code, text) == (0, "")
    assert 'none with namespace="nss"' in messages


def test_other_forms(url: str) -> None:
    (item,) = json.loads(called("--by", "class", "-o", "json", "--server", url)[1])["items"]
    assert (item["class"], item["devices"], item["of"]) == ("gpu", 1.0, 4.0)
    assert called("--by", "driver", "-o", "name", "--server", url)[1] == f"{DRIVER}\n"
    rows = list(csv.DictReader(io.StringIO(called("-A", "--step", "1h", "--csv", "--server", url)[1])))
    assert {(row["namespace"], row["of"]) for row in rows} == {("ns", "4.0")}
    assert all(row["time"].endswith(":00Z") for row in rows)


def test_pods_that_wait(url: str) -> None:
    heading, row = called("-A", "--waits", "--server", url)[1].splitlines()
    assert heading.split() == ["NAMESPACE", "WAITING", "PLACED", "P50", "P95"]
    assert row.split() == ["ns", "1.0", "0", "-", "-"]


def test_mistakes_are_told_in_the_words_of_the_service(url: str) -> None:
    code, text, messages = called("--window", "2d", "--server", url)
    assert (code, text) == (2, "")
    assert 'window: "2d" is not a length of time' in messages


def test_the_other_program_has_the_same_command(url: str) -> None:
    result = CliRunner().invoke(app, ["usage", "--by", "model", "--server", url])
    assert (result.exit_code, result.stdout.split()[:2]) == (0, ["MODEL", "DRIVER"])
