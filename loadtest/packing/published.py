"""Results that others have published for the same traces, from a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

Published: TypeAlias = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Trace to policy to percent of all GPUs asked for to percent of all GPUs allocated."""

_FORM: Final[TypeAdapter[Published]] = TypeAdapter(Published)


class PublishedError(ValueError):
    """A file that does not have published results; the text names the file and the place in it."""


def read_published(path: Path) -> Published:
    """Published results from a JSON file. Raises PublishedError."""
    try:
        return _FORM.validate_json(path.read_bytes())
    except OSError as error:
        raise PublishedError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise PublishedError(f"{path}: {place}: {first['msg']}") from error
