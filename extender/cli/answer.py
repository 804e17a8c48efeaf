"""An explanation for the command line: from this process or from a running service."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import typer

from allocator.tools import printable
from extender.cli.messages import FOUND_PROBLEMS, print_data
from extender.explain.explanation import Conclusion

_GOOD: Final = frozenset(
    {Conclusion.FITS.value, Conclusion.BOUND.value, Conclusion.NEEDS_NOTHING.value, Conclusion.ALLOCATED.value}
)


@dataclass(frozen=True, slots=True)
class ExplanationJson:
    """An explanation as JSON."""

    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text for people, made printable: the service may send any characters."""
        return "\n".join(map(printable, str(self.document["text"]).split("\n")))

    @property
    def is_good(self) -> bool:
        """The pod is bound, fits on a node, or needs no devices; the claim is allocated, or fits on a node."""
        return self.document["verdict"] in _GOOD


def print_answer(answer: ExplanationJson, form: StrEnum) -> None:
    """Print an explanation; ends the command with 1 if the pod fits nowhere."""
    if form.value in {"json", "yaml"}:
        print_data(answer.document, form)
    else:
        typer.echo(answer.text, nl=False)
    if not answer.is_good:
        raise typer.Exit(FOUND_PROBLEMS)
