"""Named formats of Kubernetes: ``format.dns1123Label().validate("x")``."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final

from allocator.cel.cost import ONE, UNKNOWN_SIZE, Cost, pattern
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.functions.times import parse_timestamp
from allocator.cel.functions.urls import parse_url
from allocator.cel.types import FORMAT, STRING, list_of, optional_of
from allocator.cel.values import NONE, NamedFormat, OptionalValue, Value, size

Problems = Callable[[str], tuple[str, ...]]

_LONGEST_REGEX: Final = 1080
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_QUALIFIED: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def _matching(pattern_text: str, longest: int, message: str, *, prefix: bool = False) -> Problems:
    """Check the form and the length of a text; a prefix may end in a dash."""
    regex = re.compile(pattern_text)

    def problems(text: str) -> tuple[str, ...]:
        whole = f"{text[:-1]}a" if prefix and text.endswith("-") else text
        found = (f"must be no more than {longest} characters",) if len(whole) > longest else ()
        return found if regex.fullmatch(whole) else (*found, message)

    return problems


_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
)
_LABEL_MESSAGE: Final = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
_DNS1035_MESSAGE: Final = (
    "a DNS-1035 label must start with a letter and consist of lower case alphanumeric characters or '-'"
)


def _label(*, prefix: bool) -> Problems:
    return _matching(_LABEL, 63, _LABEL_MESSAGE, prefix=prefix)


def _subdomain(*, prefix: bool) -> Problems:
    return _matching(rf"{_LABEL}(?:\.{_LABEL})*", 253, _SUBDOMAIN_MESSAGE, prefix=prefix)


def _dns1035(*, prefix: bool) -> Problems:
    return _matching(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", 63, _DNS1035_MESSAGE, prefix=prefix)


def _name_part(text: str) -> tuple[str, ...]:
    if not text:
        return ("name part must be non-empty",)
    long = ("name part must be no more than 63 characters",) if len(text) > 63 else ()
    return (
        long
        if _QUALIFIED.fullmatch(text)
        else (*long, "name part must consist of alphanumeric characters, '-', '_' or '.'")
    )


def _qualified_name(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return ("a qualified name must have at most one '/'",)
    if not slash:
        return _name_part(name)
    if not prefix:
        return ("prefix part must be non-empty", *_name_part(name))
    return (*(f"prefix part {problem}" for problem in _subdomain(prefix=False)(prefix)), *_name_part(name))


def _label_value(text: str) -> tuple[str, ...]:
    long = ("must be no more than 63 characters",) if len(text) > 63 else ()
    valid = text == "" or _QUALIFIED.fullmatch(text)
    return (
        long
        if valid
        else (*long, "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'")
    )


def _checked(check: Callable[[str], object], message: str) -> Problems:
    def problems(text: str) -> tuple[str, ...]:
        try:
            valid = check(text)
        except (ValueError, EvaluationError, binascii.Error):
            valid = None
        return (message,) if valid is None else ()

    return problems


def _base64(text: str) -> bytes | None:
    return base64.b64decode(text, validate=True) if text else None


def _date(text: str) -> date | None:
    return date.fromisoformat(text) if _DATE.fullmatch(text) else None


FORMATS: Final[Mapping[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", 30, _label(prefix=False)),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", 60, _subdomain(prefix=False)),
    "dns1035Label": NamedFormat("DNS1035Label", 30, _dns1035(prefix=False)),
    "qualifiedName": NamedFormat("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", 30, _label(prefix=True)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", 60, _subdomain(prefix=True)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", 30, _dns1035(prefix=True)),
    "labelValue": NamedFormat("LabelValue", 40, _label_value),
    "uri": NamedFormat("URI", 1103, _checked(parse_url, "invalid URI")),
    "uuid": NamedFormat("uuid", 70, _checked(_UUID.fullmatch, "does not match the UUID format")),
    "byte": NamedFormat("byte", 84, _checked(_base64, "invalid base64")),
    "date": NamedFormat("date", 71, _checked(_date, "invalid date")),
    "datetime": NamedFormat("datetime", 71, _checked(parse_timestamp, "invalid datetime")),
}
"""Formats by name. The regex sizes are upstream's estimates of the cost of validation."""


def _validate(form: NamedFormat, text: str) -> OptionalValue:
    problems = form.problems(text)
    return OptionalValue(present=True, value=problems) if problems else NONE


def _named(name: str) -> OptionalValue:
    return OptionalValue(present=True, value=FORMATS[name]) if name in FORMATS else NONE


def _cost(arguments: Sequence[Value], _result: Value) -> int:
    form, text = arguments
    return pattern(size(text), form.regex_size) if isinstance(form, NamedFormat) else 1


def _constant(form: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: form


LIBRARY: Final[Library] = (
    *(function(f"format.{name}", free(result=FORMAT, call=_constant(form))) for name, form in FORMATS.items()),
    function("format.named", free(STRING, result=optional_of(FORMAT), call=_named), cost=ONE),
    function(
        "validate",
        member(FORMAT, STRING, result=optional_of(list_of(STRING)), call=_validate),
        cost=Cost(_cost, lambda sizes: pattern(sizes[1], _LONGEST_REGEX) if sizes[1] < UNKNOWN_SIZE else UNKNOWN_SIZE),
    ),
)
