"""The catalog of the settings: reads the file with node templates."""

from pathlib import Path

from extender.autoscaler.templates.catalog import Catalog
from extender.autoscaler.templates.node_templates import TemplateError, load_templates
from extender.config.settings import Settings
from extender.tools.text_file import UnreadableError, read_text


def read_catalog(settings: Settings) -> Catalog:
    """The catalog of nodes to come; reads the file with their templates.

    Raises:
        TemplateError: the file can't be read, or is invalid.
    """
    wanted = settings.autoscaler
    path = wanted.node_templates
    try:
        text = read_text(Path(path)) if path else ""
    except UnreadableError as error:
        raise TemplateError((f"autoscaler.nodeTemplates: {path}: {error}",)) from error
    return Catalog(load_templates(text, file=path), wanted.learn_from_label)
