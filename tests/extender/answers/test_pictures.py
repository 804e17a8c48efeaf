"""Pictures: what is on them, and that text of others stays text."""

from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocator import Features
from allocator.checks import DeviceState
from extender.answers.observe.device_states import DeviceStates
from extender.answers.pictures import Cell, FleetPicture, Line, WaitingPod, fleet_of, fleet_picture
from extender.faces.commands.main import app
from extender.faces.simulation.cluster import Cluster
from tests.extender.faces.commands.scenes import small_cluster
from tests.kit.clusters import GPU, claim, local_slice, node, pod

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>\x1b[2J\u202e&amp;]]>\ud800\x00"
ELEMENTS = {f"{SVG}{name}" for name in ("svg", "title", "style", "defs", "pattern", "path", "text", "rect")}


def texts(picture: bytes) -> list[str]:
    return [each.text or "" for each in fromstring(picture).iter(f"{SVG}text")]


def cells(picture: bytes, state: str) -> list[Element]:
    found = [each for each in fromstring(picture).iter(f"{SVG}rect") if each.get("class") == state]
    return [each for each in found if each.find(f"{SVG}title") is not None]


def test_a_cluster_after_its_scheduling() -> None:
    objects = (GPU, node("a"), node("b"), local_slice("a", devices=2), local_slice("b"))
    pods = (claim("c"), claim("d"), claim("e"), claim("f"), *(pod(f"p-{name}", name) for name in "cdef"))
    cluster = Cluster.from_objects([*objects, *pods])
    placements = cluster.schedule()
    waiting = [WaitingPod(each.pod, each.reason) for each in placements if not each.node]
    fleet = fleet_of(cluster.snapshot, DeviceStates(Features()), "after", waiting)
    assert [(line.node, [cell.state.value for cell in line.cells], len(line.pods)) for line in fleet.lines] == [
        ("a", ["allocated", "allocated"], 2),
        ("b", ["allocated"], 1),
    ]
    picture = fleet_picture(fleet)
    assert picture == fleet_picture(fleet)
    shown = texts(picture)
    assert {"after", "a", "b", "allocated 3", "free 0", "without a node: 1", waiting[0].pod} <= set(shown)
    titles = [each.findtext(f"{SVG}title") for each in cells(picture, "allocated")]
    assert "gpu.example.com/b/gpu-0: allocated, claim ns/c (pod p-c)" in titles


@pytest.mark.parametrize("state", list(DeviceState))
def test_each_state_has_a_cell_and_a_count(state: DeviceState) -> None:
    picture = fleet_picture(FleetPicture("f", [Line("n", (Cell(state, "device"),) * 3)]))
    assert len(cells(picture, state.value)) == 3
    assert f"{state.value} 3" in texts(picture)


def test_many_devices_take_several_rows_and_many_pods_are_counted() -> None:
    line = Line("n", (Cell(DeviceState.FREE, "device"),) * 70)
    waiting = [WaitingPod(f"ns/p-{number}", "no device") for number in range(60)]
    picture = fleet_picture(FleetPicture("f", [line], waiting))
    rows = {each.get("y") for each in cells(picture, "free")}
    assert len(rows) == 3
    assert "and 10 more" in texts(picture)


def test_an_empty_cluster_has_a_picture() -> None:
    assert texts(fleet_picture(FleetPicture("nothing", []))) == ["nothing", "free 0"]


@given(st.text(max_size=30) | st.just(EVIL))
def test_text_of_others_is_neither_markup_nor_control(text: str) -> None:
    line = Line(text, (Cell(DeviceState.CLASH, text), Cell(DeviceState.SHARED, text)), (text,))
    picture = fleet_picture(FleetPicture(text, [line], [WaitingPod(text, text)]))
    root = fromstring(picture)
    assert {each.tag for each in root.iter()} <= ELEMENTS
    assert all(each.isprintable() for each in picture.decode().replace("\n", ""))
    assert {name for each in root.iter() for name in each.attrib if name.startswith("on")} == set()


def test_simulate_draws(tmp_path: Path) -> None:
    file = tmp_path / "out.svg"
    line = ["simulate", str(small_cluster(tmp_path / "cluster.yaml")), "--picture"]
    assert CliRunner().invoke(app, [*line, str(file)]).exit_code == 0
    assert "without a node: 1" in texts(file.read_bytes())
    refused = CliRunner().invoke(app, [*line, str(tmp_path / "none" / "out.svg")])
    assert (refused.exit_code, "No such file or directory" in refused.stderr) == (2, True)
    both = CliRunner().invoke(app, [*line, str(file), "--explain", "ns/p"])
    assert (both.exit_code, both.stderr) == (2, "error: --explain and --picture: only one of them\n")
