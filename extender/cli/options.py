"""Options and arguments that several commands share."""

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
    """A path. An empty text, perhaps of an unset variable, must not mean the working directory."""
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
        help="YAML or JSON files, or folders of them; takes several, and can be repeated.",
    ),
]
PathsArgument = Annotated[
    list[Path], typer.Argument(metavar="PATH", parser=_path, help="YAML or JSON files, or folders of them.")
]
MorePathsArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH", parser=_path, help="The same as --manifests.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", parser=_path, help="Settings file, such as config/extender.yaml."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=_path,
        help="Kubeconfig of the live cluster; default: KUBECONFIG, else the pod's own account.",
    ),
]
ContextOption = Annotated[
    str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.")
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help=f"Which devices to prefer: {', '.join(sorted(POLICIES))}.")
]
ExplainOutputOption = Annotated[ExplainOutput, typer.Option("--output", "-o", help="How to print the explanation.")]


def spread(arguments: Iterable[str], *options: str) -> list[str]:
    """Repeat an option before each of its values: ``-m a b`` becomes ``-m a -m b``, which typer can parse."""
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
