"""Pictures of a cluster, as SVG: a line for each node, a cell for each device by its state, and the pods on the node.

The cells are those of the console: no state is told by its color alone. Text of others stays text: markup and control
characters are escaped. The command line and load tests draw with it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from allocator.checks import DeviceState
from allocator.tools import printable
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.tables.devices import devices
from extender.cluster.snapshot import Snapshot
from extender.tools.table import Item

_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_LONGEST_TEXT: Final = 1000
"""The most characters of a text; a longer one ends with three dots."""


class Drawing:
    """An SVG in the making. Places and sizes are in pixels; `finish` says how large it is.

    Args:
        title: for screen readers, and for the tab of a browser.
        style: CSS for the classes that are used.
    """

    def __init__(self, title: str, style: str) -> None:
        self._root = Element("svg", {"xmlns": _NAMESPACE, "role": "img"})
        SubElement(self._root, "title").text = _shown(title)
        SubElement(self._root, "style").text = style
        self._definitions = SubElement(self._root, "defs")

    def pattern(self, name: str, size: int, path: str) -> None:
        """A pattern that boxes can be filled with: lines that are repeated.

        Args:
            name: the id.
            size: width and height of one piece.
            path: the lines of one piece, as SVG writes paths.
        """
        place = {"id": name, "width": str(size), "height": str(size), "patternUnits": "userSpaceOnUse"}
        SubElement(SubElement(self._definitions, "pattern", place), "path", {"d": path, "class": name})

    def text(self, x: float, y: float, text: str, name: str = "", *, title: str = "") -> None:
        """A line of text; a title is shown when the pointer rests on it."""
        found = SubElement(self._root, "text", {"x": f"{x:g}", "y": f"{y:g}", **_named(name)})
        found.text = _shown(text)
        if title:
            SubElement(found, "title").text = _shown(title)

    def box(self, x: float, y: float, width: float, height: float, name: str, *, title: str = "") -> None:
        """A box; a title is shown when the pointer rests on it."""
        place = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
        found = SubElement(self._root, "rect", {**place, **_named(name)})
        if title:
            SubElement(found, "title").text = _shown(title)

    def path(self, path: str, name: str) -> None:
        """Lines, as SVG writes paths."""
        SubElement(self._root, "path", {"d": path, **_named(name)})

    def finish(self, width: float, height: float) -> bytes:
        """The SVG in UTF-8; it can be shown in any size."""
        size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        for name, value in size.items():
            self._root.set(name, value)
        return bytes(tostring(self._root, encoding="utf-8", xml_declaration=True))


def _named(name: str) -> dict[str, str]:
    return {"class": name} if name else {}


def _shown(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}..."


_SIDE: Final = 14
_STEP: Final = 18
_LINE: Final = 22
_MARGIN: Final = 16
_NAMES: Final = 200
"""The width of the column of nodes."""

_CELLS: Final = 32
"""The most cells in one line."""

_PODS: Final = 420
_CHARACTER: Final = 7.3
"""The width of a character of the monospaced type."""

_MOST_PENDING: Final = 50

_STYLE: Final = """
svg { --paper: light-dark(#fbfbfa, #15171a); --ink: light-dark(#1b1e22, #e9ebed); --quiet: light-dark(#5b6168, #a3a9b1);
  --line: light-dark(#e3e4e2, #2e3238); --free: light-dark(#2b7a5b, #57b78f); --taken: light-dark(#3c4550, #b3bcc7);
  --blocked: light-dark(#8a8f96, #777e87); --tainted: light-dark(#a86400, #e0a548);
  --clash: light-dark(#b3261e, #f08078);
  color-scheme: light dark; background: var(--paper); }
text { font: 12px ui-monospace, monospace; fill: var(--ink); white-space: pre; }
.heading { font-weight: bold; font-size: 14px; } .quiet { fill: var(--quiet); }
.rule { stroke: var(--line); fill: none; }
rect { rx: 3px; fill: none; stroke-width: 1.5px; }
.free, .shared { stroke: var(--free); } .half { fill: var(--taken); stroke: none; }
.allocated { stroke: var(--taken); fill: var(--taken); }
.blocked { stroke: var(--blocked); fill: url(#hatch); }
.hatch { stroke: var(--blocked); stroke-width: 1.5px; fill: none; }
.tainted { stroke: var(--tainted); } .dot { fill: var(--tainted); stroke: none; }
.clash { stroke: var(--clash); } .cross { stroke: var(--clash); stroke-width: 1.5px; fill: none; }
.unusable { stroke: var(--quiet); stroke-dasharray: 3 2; }
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A device.

    Attributes:
        title: what is told of it when the pointer rests on its cell.
    """

    state: DeviceState
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A node, its devices, and the pods with devices on it.

    Attributes:
        node: its name; for devices of several nodes, how they are chosen.
    """

    node: str
    cells: tuple[Cell, ...]
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node, and why."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class FleetPicture:
    """The content of the picture."""

    title: str
    lines: Sequence[Line]
    waiting: Sequence[WaitingPod] = ()


def fleet_picture(fleet: FleetPicture) -> bytes:
    """The picture as SVG, in UTF-8; equal fleets give equal bytes."""
    drawing = Drawing(fleet.title, _STYLE)
    drawing.pattern("hatch", 4, "M0,4 L4,0")
    drawing.text(_MARGIN, _MARGIN + 12, fleet.title, "heading")
    y = _legend(drawing, fleet, _MARGIN + 24)
    widest = min(_CELLS, max((len(line.cells) for line in fleet.lines), default=0))
    pods_at = _MARGIN + _NAMES + max(widest, 4) * _STEP + _MARGIN
    width = pods_at + _PODS + _MARGIN
    for line in fleet.lines:
        drawing.path(f"M{_MARGIN},{y:g} H{width - _MARGIN:g}", "rule")
        y = _draw_line(drawing, line, y + 4, pods_at)
    return drawing.finish(width, _draw_waiting(drawing, fleet.waiting, y, width) + _MARGIN)


def _legend(drawing: Drawing, fleet: FleetPicture, y: float) -> float:
    numbers = Counter(cell.state for line in fleet.lines for cell in line.cells)
    x: float = _MARGIN
    for state in DeviceState:
        if numbers[state] or state is DeviceState.FREE:
            text = f"{state.value} {numbers[state]}"
            _cell(drawing, Cell(state, ""), x, y)
            drawing.text(x + _STEP, y + 11, text, "quiet")
            x += _STEP + len(text) * _CHARACTER + _MARGIN
    return y + _LINE


def _draw_line(drawing: Drawing, line: Line, y: float, pods_at: float) -> float:
    """Draw a node; returns where the next one begins."""
    drawing.text(_MARGIN, y + 11, _cut(line.node, _NAMES), title=line.node)
    for number, cell in enumerate(line.cells):
        row, column = divmod(number, _CELLS)
        _cell(drawing, cell, _MARGIN + _NAMES + column * _STEP, y + row * _STEP)
    pods = ", ".join(line.pods)
    drawing.text(pods_at, y + 11, _cut(pods, _PODS), "quiet", title=pods)
    return y + max(1, -(-len(line.cells) // _CELLS)) * _STEP + 4


def _cell(drawing: Drawing, cell: Cell, x: float, y: float) -> None:
    drawing.box(x, y, _SIDE, _SIDE, cell.state.value, title=cell.title)
    if cell.state is DeviceState.SHARED:
        drawing.box(x + 2, y + _SIDE / 2, _SIDE - 4, _SIDE / 2 - 2, "half", title=cell.title)
    elif cell.state is DeviceState.TAINTED:
        drawing.box(x + 4.5, y + 4.5, 5, 5, "dot", title=cell.title)
    elif cell.state is DeviceState.CLASH:
        far = _SIDE - 3
        drawing.path(
            f"M{x + 3:g},{y + 3:g} L{x + far:g},{y + far:g} M{x + far:g},{y + 3:g} L{x + 3:g},{y + far:g}", "cross"
        )


def _draw_waiting(drawing: Drawing, waiting: Sequence[WaitingPod], y: float, width: float) -> float:
    """Draw the pods without a node; returns where the picture ends."""
    if not waiting:
        return y
    y += _LINE
    drawing.text(_MARGIN, y + 11, f"without a node: {len(waiting)}", "heading")
    for each in waiting[:_MOST_PENDING]:
        y += _LINE
        drawing.text(_MARGIN, y + 11, _cut(each.pod, _NAMES), title=each.pod)
        room = width - 2 * _MARGIN - _NAMES
        drawing.text(_MARGIN + _NAMES, y + 11, _cut(each.reason, room), "quiet", title=each.reason)
    if len(waiting) > _MOST_PENDING:
        y += _LINE
        drawing.text(_MARGIN, y + 11, f"and {len(waiting) - _MOST_PENDING} more", "quiet")
    return y + _LINE


def _cut(text: str, width: float) -> str:
    most = int(width / _CHARACTER) - 1
    return text if len(text) <= most else f"{text[: most - 1]}…"


def fleet_of(snapshot: Snapshot, states: DeviceStates, title: str, waiting: Iterable[WaitingPod] = ()) -> FleetPicture:
    """The fleet of a snapshot, sorted by nodes; the states have the words of the table of devices.

    Args:
        snapshot: the cluster.
        states: of its devices.
        title: of the picture.
        waiting: pods without a node.
    """
    users = _users(snapshot)
    cells: defaultdict[str, list[Cell]] = defaultdict(list, {name: [] for name in snapshot.nodes})
    for row in devices(snapshot, states).rows:
        item = row.item()
        cells[str(item["node"]) or "no node"].append(Cell(DeviceState(item["state"]), _title(item, users)))
    pods: defaultdict[str, list[str]] = defaultdict(list)
    for key, pod in snapshot.pods.items():
        if pod.node_name and pod.needs_devices and not pod.is_finished:
            pods[pod.node_name].append(str(key))
    lines = [Line(node, tuple(found), tuple(sorted(pods[node]))) for node, found in sorted(cells.items())]
    return FleetPicture(title, lines, tuple(waiting))


def _users(snapshot: Snapshot) -> Mapping[str, str]:
    """The pods that may use each claim, by the name of the claim."""
    return {str(key): ", ".join(user.name for user in each.claim.reserved_for) for key, each in snapshot.claims.items()}


def _title(item: Item, users: Mapping[str, str]) -> str:
    """``gpu.example.com/node-0/gpu-0: allocated, claim demo/gpu (pod training)``."""
    name = f"{item['driver']}/{item['pool']}/{item['device']}"
    claims = item["claims"] if isinstance(item["claims"], list) else []
    held = [f"claim {each}" + (f" (pod {users[each]})" if users.get(str(each)) else "") for each in map(str, claims)]
    return ", ".join(filter(None, (f"{name}: {item['state']}", *held, str(item["why"]))))
