"""Kubernetes' published OpenAPI (v3) as the table of fields that `allocator.model.validation.schema` reads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = Mapping[str, Any]

_REFERENCE: Final = "#/components/schemas/"
_PREFIXES: Final = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.api.")
_SCALARS: Final[Mapping[tuple[str, str], str]] = {
    ("string", ""): "string",
    ("string", "byte"): "string",
    ("string", "date-time"): "time",
    ("boolean", ""): "bool",
    ("integer", ""): "int64",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("number", ""): "number",
    ("number", "double"): "number",
    ("object", ""): "object",
}
"""Words of the table, by type and format."""

_SPECIAL: Final[Mapping[str, str]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
}
"""Types with JSON of their own, which OpenAPI describes only loosely."""


@dataclass(frozen=True)
class FieldTable:
    """Kinds and types as in ``fields.json``.

    Attributes:
        kinds: ``apiVersion kind`` to the type of its objects.
        types: for each type its fields, each with the type of its value; ``[T]`` is a list, ``{T}`` a map.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    types: dict[str, dict[str, str]] = field(default_factory=dict)


def field_table(documents: Iterable[Json], kinds: Iterable[tuple[str, str]]) -> FieldTable:
    """What some kinds consist of.

    Args:
        documents: OpenAPI of API versions; fields of a type that several documents have are united.
        kinds: apiVersion and kind; a kind that no document has is left out.
    """
    wanted, table = set(kinds), FieldTable()
    for document in documents:
        schemas = document["components"]["schemas"]
        found = {kind: name for name, schema in schemas.items() for kind in _kinds_of(schema) if kind in wanted}
        for (version, kind), name in found.items():
            table.kinds[f"{version} {kind}"] = _short(name)
            _add(table, schemas, name, set())
    return table


def problems_of(obj: Json, documents: Iterable[Json]) -> list[str]:
    """What of an object is not as Kubernetes' OpenAPI says: unknown and missing fields, and values of a wrong type."""
    kind = (obj["apiVersion"], obj["kind"])
    for document in documents:
        schemas = document["components"]["schemas"]
        for name, schema in schemas.items():
            if kind in _kinds_of(schema):
                return [*_mismatches(obj, {"$ref": _REFERENCE + name}, schemas, "")]
    return [f"no {kind[1]} of {kind[0]}"]


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


def _mismatches(value: object, schema: Json, schemas: Json, at: str) -> Iterator[str]:
    name = _referenced(schema)
    if name:
        if name not in _SPECIAL:
            yield from _mismatches(value, schemas[name], schemas, at)
        return
    if "type" in schema and not isinstance(value, _TYPES[schema["type"]]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _mismatches(each, schema.get("items", {}), schemas, f"{at}[{number}]")
    elif isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{at}.{field}: missing" for field in schema.get("required", ()) if field not in value)
        for field, each in value.items():
            if field not in fields and fields and others is None:
                yield f"{at}.{field}: unknown"
            else:
                yield from _mismatches(each, fields.get(field, others or {}), schemas, f"{at}.{field}")


def _kinds_of(schema: Json) -> Iterator[tuple[str, str]]:
    for each in schema.get("x-kubernetes-group-version-kind", ()):
        yield "/".join(part for part in (each["group"], each["version"]) if part), each["kind"]


def _add(table: FieldTable, schemas: Json, name: str, seen: set[str]) -> None:
    """Add a type and all types of its fields."""
    if name in seen:
        return
    seen.add(name)
    fields = table.types.setdefault(_short(name), {})
    for key, schema in schemas[name]["properties"].items():
        fields[key] = _value(schemas, schema)
        for inner in _objects_in(schemas, schema):
            _add(table, schemas, inner, seen)


def _value(schemas: Json, schema: Json) -> str:
    """The type of a value, in the words of the table."""
    name = _referenced(schema)
    if name:
        return _SPECIAL.get(name) or (_short(name) if "properties" in schemas[name] else _value(schemas, schemas[name]))
    if schema.get("type") == "array":
        return f"[{_value(schemas, schema['items'])}]"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"{{{_value(schemas, schema['additionalProperties'])}}}"
    return _SCALARS[schema["type"], schema.get("format", "")]


def _objects_in(schemas: Json, schema: Json) -> Iterator[str]:
    """The types with fields that a value consists of: itself, its items or its values."""
    name = _referenced(schema)
    if name:
        if "properties" in schemas[name]:
            yield name
        return
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), Mapping):
            yield from _objects_in(schemas, schema[part])


def _referenced(schema: Json) -> str:
    """The name of the type that a schema refers to; empty if it is a type itself."""
    reference = schema.get("$ref") or next((each.get("$ref", "") for each in schema.get("allOf", ())), "")
    return str(reference).removeprefix(_REFERENCE)


def _short(name: str) -> str:
    """E.g. ``core.v1.PodSpec``."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
