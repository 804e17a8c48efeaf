"""The screen of `kubectl dra top`; it needs the extra ``top``, which brings textual."""

from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Static

from allocator.tools import printable
from extender.faces.commands.remote import RemoteError
from extender.faces.commands.top import TopView
from extender.kube.api import ApiError, OutcomeUnknownError
from extender.tools.table import TextTable

_TABLES: Final = ("nodes", "waiting", "decisions")
_LONGEST_CELL: Final = 200


class TopScreen(App[None]):
    """Nodes, waiting pods and decisions, looked at again and again.

    Args:
        look: one look at the cluster.
        seconds: between two looks.
    """

    CSS = """
    Static { height: auto; padding: 0 1; }
    .heading { text-style: bold; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("r", "look", "Look now")]

    def __init__(self, look: Callable[[], Awaitable[TopView]], seconds: float) -> None:
        super().__init__()
        self._look = look
        self._seconds = seconds

    def compose(self) -> ComposeResult:
        """A line about the source, and a table for each subject."""
        yield Static("asking ...", id="source")
        for name in _TABLES:
            yield Static(name, classes="heading", id=f"{name}-heading")
            yield DataTable(id=name, cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Look now, and from time to time."""
        self.action_look()
        self.set_interval(self._seconds, self.action_look)

    def action_look(self) -> None:
        """Look at the cluster; a look that has not ended yet is given up."""
        self.run_worker(self._show(), exclusive=True)

    async def _show(self) -> None:
        source = self.query_one("#source", Static)
        try:
            view = await self._look()
        except (RemoteError, ApiError, OutcomeUnknownError) as error:
            source.update(Text(f"no answer, so this is old: {printable(str(error))}"))
            return
        source.update(Text("; ".join(map(printable, (f"answered by {view.source}", *view.notes)))))
        for name, table in zip(_TABLES, (view.nodes, view.waiting, view.decisions), strict=True):
            self.query_one(f"#{name}-heading", Static).update(f"{name}: {len(table.rows)}")
            _fill(self.query_one(f"#{name}", DataTable), table)


def _fill(widget: "DataTable[Text]", table: TextTable) -> None:
    """Put the rows into the widget; where the reader is in it stays."""
    at, down = widget.cursor_coordinate, widget.scroll_offset.y
    widget.clear(columns=True)
    widget.add_columns(*(heading.upper() for heading in table.columns))
    for row in table.rows:
        widget.add_row(*(Text(printable(cell)[:_LONGEST_CELL]) for cell in row))
    if widget.row_count:
        widget.cursor_coordinate = Coordinate(min(at.row, widget.row_count - 1), 0)
        widget.scroll_to(y=down, animate=False)
