"""`dra-extender config`: prints or checks the settings."""

import typer

from extender.autoscaler.from_settings import read_catalog
from extender.autoscaler.templates.node_templates import TemplateError
from extender.cli.messages import FOUND_PROBLEMS, say
from extender.cli.options import ConfigOption, command_app, examples
from extender.cli.reading import read_settings, settings_of
from extender.config.sources import SettingsError

app = command_app(help_text="Print or check the settings.")


@app.command("print", epilog=examples("dra-extender config print --config config/extender.yaml"))
def config_print(config: ConfigOption = None) -> None:
    """Print the settings from file and environment, as a settings file."""
    typer.echo(settings_of(config, {}).as_yaml(), nl=False)


@app.command("check", epilog=examples("dra-extender config check --config config/extender.yaml"))
def config_check(config: ConfigOption = None) -> None:
    """Check the settings from file and environment, and the node templates that they name."""
    try:
        read_catalog(read_settings(config, {}))
    except (SettingsError, TemplateError) as error:
        say(*error.problems)
        raise typer.Exit(FOUND_PROBLEMS) from error
    typer.echo("the settings are valid")
