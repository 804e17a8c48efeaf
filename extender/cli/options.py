"""What commands take: options and arguments that several of them share, and how they are read."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from allocator import POLICIES


class ExplainOutput(StrEnum):
    """How an explanation is printed."""

    TEXT = "text"
    JSON = "json"


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def _path(text: str) -> Path:
    """A path that was given. An empty one, of a variable that is not set perhaps, is not the working directory."""
    if not text:
        raise typer.BadParameter("a path is empty")
    return Path(text)


ManifestsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--manifests",
        "-m",
        metavar="PATH...",
        parser=_path,
        help="Files and folders of YAML or JSON; several, and again.",
    ),
]
PathsArgument = Annotated[
    list[Path], typer.Argument(metavar="PATH", parser=_path, help="Files and folders of YAML or JSON.")
]
MorePathsArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH", parser=_path, help="The same as --manifests.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", parser=_path, help="Settings, as in config/extender.yaml."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", parser=_path, help="Of the live cluster; else KUBECONFIG, else the pod we run in."),
]
ContextOption = Annotated[str, typer.Option(metavar="NAME", help="Of the kubeconfig; else its current one.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help=f"Which devices to prefer: {', '.join(sorted(POLICIES))}.")
]
ExplainOutputOption = Annotated[ExplainOutput, typer.Option("--output", "-o", help="How to print it.")]


def spread(arguments: Iterable[str], *options: str) -> list[str]:
    """Repeat an option before each of its values: ``-m a b`` becomes ``-m a -m b``, as parsers of options want it."""
    result: list[str] = []
    taking, values = "", 0
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            name, equals, _ = argument.partition("=")
            taking, values = (name if name in options else ""), int(bool(equals))
        elif taking:
            result += [taking] if values else []
            values += 1
        result.append(argument)
    return result
