"""Declarations of commands: their options, groups of options that several commands share, and how help looks."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_type_hints

import typer

from allocator.policies import POLICIES
from extender.faces.commands.output import fail
from extender.tools.files import UnreadableError, read_text

_MARKUP: Final[Literal["rich"] | None] = "rich" if sys.stdout and sys.stdout.isatty() else None
"""Boxes around help only on a terminal."""


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that several commands share: a parameter with this annotation stands for all of them.

    Attributes:
        make: has a parameter for each of the options, or for a further group; what it returns is the argument.
    """

    make: Callable[..., object]


def command(*examples: str, help_text: str | None = None) -> Callable[[Callable[..., None]], typer.Typer]:
    """Declare a command, with examples for the end of its help text, which is the docstring if none is given."""

    def declared(function: Callable[..., None]) -> typer.Typer:
        app = application()
        app.command(help=help_text, epilog="\n\n".join(("Examples:", *examples)) if examples else None)(
            _expanded(function)
        )
        return app

    return declared


def command_group(help_text: str, commands: Mapping[str, typer.Typer]) -> typer.Typer:
    """One command of several commands, by their names."""
    app = application(help=help_text)
    for name, each in commands.items():
        for declared in each.registered_commands:
            declared.name = name
            app.registered_commands.append(declared)
    return app


def application(**attributes: Any) -> typer.Typer:  # noqa: ANN401 - those of typer's own class
    """A typer application as all of them look here; one with a help text prints it if it gets no arguments."""
    return typer.Typer(
        **{"add_completion": False, **attributes},
        no_args_is_help="help" in attributes,
        pretty_exceptions_enable=False,
        rich_markup_mode=_MARKUP,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the options of a group in place of each parameter that stands for one."""
    hints = get_type_hints(function, include_extras=True)
    makers: dict[str, Callable[..., object]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        extras = getattr(hints[name], "__metadata__", ())
        group = next((each for each in extras if isinstance(each, OptionGroup)), None)
        if group is None:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            makers[name] = _expanded(group.make)
            parameters += inspect.signature(makers[name]).parameters.values()

    @wraps(function)
    def called(**options: Any) -> Any:  # noqa: ANN401 - values of any option
        for name, make in makers.items():
            options[name] = make(**{own: options.pop(own) for own in inspect.signature(make).parameters})
        return function(**options)

    called.__dict__["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


class ExplainOutput(StrEnum):
    """A form in which an explanation is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Output(StrEnum):
    """A form in which results are printed; ``name``: only the names, one a line."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class WideOutput(StrEnum):
    """A form in which placements and lists are printed; ``wide``: one line a device, and all columns."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def parse_path(text: str) -> Path:
    """A path. An empty text, perhaps of an unset variable, must not mean the working directory."""
    if not text:
        raise typer.BadParameter("a path is empty")
    return Path(text)


def text_of(path: Path) -> str:
    """The text of a file; ends the command if it cannot be read."""
    try:
        return read_text(path)
    except UnreadableError as error:
        fail(f"{path}: {error}")


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
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", parser=parse_path, help="Settings file, such as config/extender.yaml."
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
WideOutputOption = Annotated[WideOutput, typer.Option("--output", "-o", help="How to print the result.")]
PictureOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", parser=parse_path, help="Draw the nodes with their devices and pods."),
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help=f"Which devices to prefer: {', '.join(sorted(POLICIES))}.")
]
ExplainOutputOption = Annotated[ExplainOutput, typer.Option("--output", "-o", help="How to print the explanation.")]


class Kubeconfig(NamedTuple):
    """Which live cluster: a kubeconfig (None: KUBECONFIG, else the pod's own account), and a context of it."""

    file: Path | None
    context: str

    @property
    def is_given(self) -> bool:
        """A live cluster was named."""
        return bool(self.file or self.context)


def _kubeconfig(
    *,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=parse_path,
            help="Kubeconfig of the live cluster; default: KUBECONFIG, else the pod's own account.",
        ),
    ] = None,
    context: Annotated[
        str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.")
    ] = "",
) -> Kubeconfig:
    return Kubeconfig(kubeconfig, context)


def _manifests(
    *,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", parser=parse_path, help="The same as --manifests.")
    ] = None,
    manifests: ManifestsOption = None,
) -> list[Path]:
    return [*(paths or ()), *(manifests or ())]


KubeconfigOptions = Annotated[Kubeconfig, OptionGroup(_kubeconfig)]
ManifestsOptions = Annotated[list[Path], OptionGroup(_manifests)]
"""Manifests as arguments, and by the option."""


def check_one_cluster(manifests: list[Path] | None, kubeconfig: Kubeconfig) -> None:
    """End the command if manifests and a live cluster are given."""
    if manifests and kubeconfig.is_given:
        fail("manifests name a cluster in memory, --kubeconfig and --context name a live one: give only one of them")


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
