"""Values from YAML and JSON files that people write or keep: what is wrong is told by file, field and value."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_args

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from extender.tools.user_error import expected, suggestion
from extender.tools.yamltext import SyntaxProblem, documents


class Record(BaseModel):
    """A value of a file: frozen, camelCase there, unknown keys and values of another type refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_by_name=True, allow_inf_nan=False
    )


AnyRecord = TypeVar("AnyRecord", bound=Record)


class FileError(Exception):
    """A file that cannot be used; all of its problems, each naming the file, the field and the value."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def read(kind: type[AnyRecord], path: Path) -> AnyRecord:
    """The value that a file holds.

    Args:
        kind: of the value.
        path: of one YAML document; of JSON, if that is its name's end.

    Raises:
        FileError: there is no such file, or it holds something else.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError([f"{path}: {getattr(error, 'strerror', None) or error}"]) from None
    trees = [tree for tree in documents(text, is_json=path.suffix == ".json") if tree is not None]
    if bad := next((tree for tree in trees if isinstance(tree, SyntaxProblem)), None):
        raise FileError([f"{path}: {bad}"])
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise FileError([f"{path}: expected one document of keys and values"])
    try:
        # As JSON, in which a list is a tuple and a text a time; all else stays of the type that it has.
        return kind.model_validate_json(orjson.dumps(trees[0]), by_name=False, by_alias=True)
    except ValidationError as error:
        raise FileError(_problem(kind, path, each) for each in error.errors(include_url=False)) from None


def _problem(kind: type[Record], path: Path, problem: ErrorDetails) -> str:
    place = problem["loc"]
    field = f"{'.'.join(map(str, place))}: " if place else ""
    match problem["type"]:
        case "extra_forbidden":
            what = f"unknown key{suggestion(str(place[-1]), _keys(kind, place[:-1]))}"
        case "missing":
            what = "is missing"
        case _:
            what = expected(problem)
    return f"{path}: {field}{what}"


def _keys(kind: type[Record], place: Iterable[int | str]) -> set[str]:
    """The keys that there are at a place in a file."""
    for part in place:
        fields = {field.alias: field for field in kind.model_fields.values()}
        if part in fields:
            kind = next(_records(fields[str(part)].annotation), kind)
    return {field.alias for field in kind.model_fields.values() if field.alias}


def _records(annotation: object) -> Iterator[type[Record]]:
    """The records that a field may hold, or hold many of."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        yield annotation
    for inner in get_args(annotation):
        yield from _records(inner)
