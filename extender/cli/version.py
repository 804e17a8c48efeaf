"""`dra-extender version`."""

import typer

from extender.cli.options import command_app
from extender.tools.version import __version__

app = command_app()


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"dra-extender {__version__}")
