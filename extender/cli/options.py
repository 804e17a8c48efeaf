"""Options and arguments that several commands share, and how commands look."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from typer.core import TyperGroup

from allocator import POLICIES

_MARKUP: Final[Literal["rich"] | None] = "rich" if sys.stdout and sys.stdout.isatty() else None
"""Boxes around help only on a terminal."""


class ExplainOutput(StrEnum):
    """How an explanation is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Output(StrEnum):
    """How results are printed; ``name``: only the names, one a line."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class PlacementOutput(StrEnum):
    """How placements are printed; ``wide``: one line a device."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def command_app(
    name: str | None = None,
    *,
    help_text: str | None = None,
    group: type[TyperGroup] | None = None,
    add_completion: bool = False,
) -> typer.Typer:
    """The typer application of one command, or of a group of commands, which has a help text."""
    return typer.Typer(
        name=name,
        help=help_text,
        cls=group,
        add_completion=add_completion,
        no_args_is_help=help_text is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=_MARKUP,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def examples(*lines: str) -> str:
    """The end of a help text."""
    return "\n\n".join(("Examples:", *lines))


def parse_path(text: str) -> Path:
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
        parser=parse_path,
        help="YAML or JSON files, or folders of them; - is standard input. Takes several, and can be repeated.",
    ),
]
PathsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH", parser=parse_path, help="YAML or JSON files, or folders of them; - is standard input."
    ),
]
MorePathsArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH", parser=parse_path, help="The same as --manifests.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", parser=parse_path, help="Settings file, such as config/extender.yaml."
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
PlacementOutputOption = Annotated[PlacementOutput, typer.Option("--output", "-o", help="How to print the result.")]
PictureOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", parser=parse_path, help="Draw the nodes with their devices and pods."),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=parse_path,
        help="Kubeconfig of the live cluster; default: KUBECONFIG, else the pod's own account.",
    ),
]
ContextOption = Annotated[
    str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.")
]
NodeNameOption = Annotated[str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="The node that this runs on.")]
KubeletDirOption = Annotated[
    Path, typer.Option(metavar="FOLDER", parser=parse_path, help="The kubelet's root directory.")
]
CdiDirOption = Annotated[
    Path, typer.Option(metavar="FOLDER", parser=parse_path, help="Where the container runtime looks for CDI files.")
]
KUBELET_DIR: Final = Path("/var/lib/kubelet")
CDI_DIR: Final = Path("/var/run/cdi")
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=parse_path, help="With --server: a file with a bearer token that says who calls."
    ),
]
CaCertOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=parse_path,
        help="With --server: authorities that are trusted for its certificate, in PEM.",
    ),
]
CertOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=parse_path, help="With --server: a client certificate that says who calls, in PEM."
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", parser=parse_path, help="The private key of --cert, if it is in another file."),
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
