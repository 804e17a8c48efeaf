"""`dra-extender config`: prints or checks the settings."""

from pathlib import Path
from typing import Annotated

import typer

from extender.cli.messages import FOUND_PROBLEMS, fail, refuse, say, warn
from extender.cli.options import ConfigOption, command_app, examples, parse_path
from extender.cli.reading import read_settings, settings_of
from extender.config.scheduler_file import check_scheduler
from extender.config.settings import Settings
from extender.config.sources import SettingsError
from extender.planning.templates.catalog import read_catalog
from extender.planning.templates.node_templates import TemplateError
from extender.tools.text_file import UnreadableError, read_text

app = command_app(help_text="Print or check the settings.")


@app.command("print", epilog=examples("dra-extender config print --config config/extender.yaml"))
def config_print(config: ConfigOption = None) -> None:
    """Print the settings from file and environment, as a settings file."""
    typer.echo(settings_of(config, {}).as_yaml(), nl=False)


SchedulerOption = Annotated[
    Path | None,
    typer.Option(
        "--scheduler",
        metavar="FILE",
        parser=parse_path,
        help="Configuration of the kube-scheduler beside it, such as config/scheduler.yaml.",
    ),
]


@app.command(
    "check",
    epilog=examples(
        "dra-extender config check --config config/extender.yaml",
        "dra-extender config check --config config/extender.yaml --scheduler config/scheduler.yaml",
    ),
)
def config_check(config: ConfigOption = None, scheduler: SchedulerOption = None) -> None:
    """Check the settings from file and environment, their node templates, and a scheduler's configuration."""
    try:
        settings = read_settings(config, {})
        read_catalog(settings)
    except (SettingsError, TemplateError) as error:
        say(*error.problems)
        raise typer.Exit(FOUND_PROBLEMS) from error
    if scheduler is not None:
        _check_scheduler(scheduler, settings)
    typer.echo("the settings are valid")


def _check_scheduler(file: Path, settings: Settings) -> None:
    """Print what is wrong with a scheduler's configuration; ends the command if devices are not safe with it."""
    try:
        found = check_scheduler(read_text(file), settings)
    except UnreadableError as error:
        fail(f"{file}: {error}")
    except ValueError as error:
        refuse([f"{file}: {error}"])
        return
    warn(*(f"{file}: {each}" for each in found if not each.is_error))
    refuse(f"{file}: {each}" for each in found if each.is_error)
