"""`dra-extender config`: prints or checks the settings, and checks a kube-scheduler's configuration beside them."""

from pathlib import Path
from typing import Annotated

import typer

from extender.answers.observe.scheduler_settings import check_scheduler
from extender.config.settings import Settings
from extender.config.sources import SettingsError
from extender.faces.commands.options import ConfigOption, command, command_group, parse_path, text_of
from extender.faces.commands.output import FOUND_PROBLEMS, refuse, say, warn
from extender.faces.commands.reading import settings_of
from extender.planning.templates import TemplateError, read_catalog


@command("dra-extender config print --config config/extender.yaml")
def config_print(config: ConfigOption = None) -> None:
    """Print the settings from file and environment, as a settings file."""
    typer.echo(settings_of(config).as_yaml(), nl=False)


SchedulerOption = Annotated[
    Path | None,
    typer.Option(
        "--scheduler",
        metavar="FILE",
        parser=parse_path,
        help="Configuration of the kube-scheduler beside it, such as config/scheduler.yaml. Without it: that of "
        "scheduling.schedulerFile.",
    ),
]


@command(
    "dra-extender config check --config config/extender.yaml",
    "dra-extender config check --config config/extender.yaml --scheduler config/scheduler.yaml",
)
def config_check(config: ConfigOption = None, scheduler: SchedulerOption = None) -> None:
    """Check the settings from file and environment, their node templates, and a scheduler's configuration."""
    try:
        settings = settings_of(config)
        read_catalog(settings)
    except (SettingsError, TemplateError) as error:
        say(*error.problems)
        raise typer.Exit(FOUND_PROBLEMS) from error
    file = scheduler or (Path(named) if (named := settings.scheduling.scheduler_file) else None)
    if file is not None:
        _check_scheduler(file, settings)
    typer.echo("the settings are valid")


def _check_scheduler(file: Path, settings: Settings) -> None:
    """Print what is wrong with a scheduler's configuration; ends the command if devices are not safe with it."""
    try:
        found = check_scheduler(text_of(file), settings)
    except ValueError as error:
        refuse([f"{file}: {error}"])
        return
    warn(*(f"{file}: {each}" for each in found if not each.is_error))
    refuse(f"{file}: {each}" for each in found if each.is_error)


app = command_group("Print or check the settings.", {"print": config_print, "check": config_check})
