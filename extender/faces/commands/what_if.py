"""`kubectl dra what-if`: which pods would run where if things were as a file says. Nothing is written."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from allocator.tools import printable, shown
from extender.answers.whatif.edits import EDITS
from extender.faces.commands.answer_source import AnswerSource, PlaceOptions, run
from extender.faces.commands.options import ExplainOutput, ExplainOutputOption, command, text_of
from extender.faces.commands.output import fail, print_data
from extender.faces.commands.remote import RemoteError
from extender.kube.encoding import dumps
from extender.tools.yamltext import SyntaxProblem, documents

_PATH: Final = "/what-if"
_FIELDS: Final = " or ".join([", ".join(each.field for each in EDITS[:-1]), EDITS[-1].field])
_HELP: Final = f"""Which pods would run where if things were different. Nothing is written.

The file says what is to be different: {", ".join(f"{each.field} ({each.words})" for each in EDITS)}.
"""


@command("kubectl dra what-if -f question.yaml", help_text=_HELP)
def what_if(
    *,
    filename: Annotated[
        Path,
        typer.Option("--filename", "-f", metavar="FILE", help="The question, in YAML or JSON; - is standard input."),
    ],
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: PlaceOptions,
) -> None:
    """Ask the question of a file."""
    question = _read(filename)

    async def ask(source: AnswerSource) -> Mapping[str, Any]:
        document = await source.post(_PATH, question)
        if not {"pods", "text"} <= document.keys():
            raise RemoteError(f"{source.name}: {_PATH}: no answer: is this a dra-extender?")
        return document

    answer = run(place, ask)
    if output is ExplainOutput.TEXT:
        typer.echo("\n".join(map(printable, str(answer["text"]).split("\n"))), nl=False)
    else:
        print_data(answer, output)


def _read(path: Path) -> bytes:
    """The question in JSON; ends the command if it cannot be read."""
    try:
        text = sys.stdin.read() if str(path) == "-" else text_of(path)
    except UnicodeDecodeError as error:
        fail(f"{path}: {error}")
    found = [each for each in documents(text) if each is not None]
    problem = next((each for each in found if isinstance(each, SyntaxProblem)), None)
    if problem is not None:
        fail(f"{path}: {problem}")
    if len(found) != 1 or not isinstance(found[0], dict):
        what = shown(found[0]) if len(found) == 1 else f"{len(found) or 'no'} documents"
        fail(f"{path}: expected one document with {_FIELDS}, not {what}")
    return dumps(found[0])
