"""`kubectl dra usage` and `dra-extender usage`: the service's table of usage over time, in columns or as CSV."""

from typing import Annotated

import typer

from extender.answers.usage.usage import By
from extender.answers.usage.usage_table import CELLS, DAY, usage_columns, waits_columns
from extender.faces.commands.answer_source import AnswerSource, PlaceOptions, run
from extender.faces.commands.lists import OutputOption, PrintedList, Rows, key_of, read_rows
from extender.faces.commands.options import WideOutput, command
from extender.faces.commands.output import note, print_result
from extender.tools.table import TablePage, TableView


@command(
    "kubectl dra usage --by model --window 6h",
    "kubectl dra usage -A --step 1h --csv",
    "dra-extender usage -A --server http://127.0.0.1:8888",
)
def usage(
    *,
    by: Annotated[By, typer.Option(help="What a row is about.")] = By.NAMESPACE,
    window: Annotated[str, typer.Option(metavar="TIME", help="The time up to now, from 1m to 24h.")] = DAY,
    step: Annotated[str, typer.Option(metavar="TIME", help="Print a row for each step of this length.")] = "",
    waits: Annotated[bool, typer.Option("--waits", help="How long pods waited, by namespace.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a file for a spreadsheet.")] = False,
    output: OutputOption = WideOutput.TABLE,
    place: PlaceOptions,
) -> None:
    """Usage over time: devices that claims held, and device-hours, or how long pods waited."""
    columns = waits_columns(stepped=bool(step)) if waits else usage_columns(by, stepped=bool(step))
    keys = dict.fromkeys(each for each in ("time", by.value, "driver") if each in columns)
    listing = PrintedList("/usage", tuple(keys), columns)
    namespace = place.namespace if by is By.NAMESPACE else ""
    given = {"by": by.value, "window": window, "step": step, "namespace": namespace, "waits": "true" if waits else ""}

    async def ask(source: AnswerSource) -> Rows:
        return await read_rows(source, listing, {name: value for name, value in given.items() if value})

    found = run(place, ask)
    page = TablePage(TableView(columns, iter(()), CELLS), found.items)
    if csv:
        typer.echo(page.as_csv(), nl=False)
    else:
        print_result(
            output,
            names=lambda: ("/".join(key_of(item, listing)) for item in found.items),
            data=lambda: {"items": [dict(item) for item in found.items]},
            table=page.as_table,
        )
    note(*found.notes)
