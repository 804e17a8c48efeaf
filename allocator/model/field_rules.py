"""Rules that several kinds share: names, sizes, uniqueness, choices, node selectors, taints, configuration."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from allocator.tools import jsontext
from allocator.tools.fields import Fields
from allocator.tools.names import Rule, dns_subdomain, driver_name, label_key, label_value, utf8_length
from allocator.tools.printable import shown

MAX_CONFIG: Final = 32
MAX_REQUESTS: Final = 32
_MAX_SELECTORS: Final = 32
_MAX_EXPRESSION: Final = 10 * 1024
_MAX_PARAMETERS: Final = 10 * 1024
_MAX_CONDITIONS: Final = 4
_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")


def text(fields: Fields, name: str, rule: Rule, *, required: bool = True) -> None:
    """A string that follows a rule."""
    value = fields.text(name)
    if value:
        told(fields, name, value, rule(value))
    elif required:
        fields.problem(name, "is required")


def texts(fields: Fields, name: str, rule: Rule) -> None:
    """A list of strings that all follow a rule."""
    for i, value in enumerate(fields.texts(name)):
        told(fields, f"{name}[{i}]", value, rule(value))


def told(fields: Fields, name: str, value: str, wrong: str) -> None:
    """Note what is wrong with a value, unless it is empty."""
    if wrong:
        fields.problem(name, f"{shown(value)} {wrong}")


def one_of(fields: Fields, name: str, choices: Iterable[str], *, required: bool = True) -> None:
    """A string that is one of a few."""
    known = tuple(choices)
    text(fields, name, lambda value: "" if value in known else f"is not one of {', '.join(known)}", required=required)


def sized(fields: Fields, name: str, count: int, most: int) -> bool:
    """Whether a list or map is small enough; if not, its entries are not checked."""
    if count > most:
        fields.problem(name, f"has {count} entries, more than {most}")
    return count <= most


def children(fields: Fields, name: str, most: int, *, key: str = "") -> Iterator[Fields]:
    """The objects of a list, if it is small enough; no two of them may have the same `key`."""
    found = fields.children(name)
    if sized(fields, name, len(found), most):
        yield from found
        if key:
            unique(fields, name, (each.text(key) for each in found))


def distinct_texts(fields: Fields, name: str, most: int, rule: Rule) -> None:
    """A list of strings that follow a rule: not too many, and no two are the same."""
    values = fields.texts(name)
    if sized(fields, name, len(values), most):
        texts(fields, name, rule)
        unique(fields, name, values)


def unique(fields: Fields, name: str, keys: Iterable[Hashable]) -> None:
    """No two entries of a list are the same."""
    seen: set[Hashable] = set()
    for i, key in enumerate(keys):
        if key in seen:
            fields.problem(f"{name}[{i}]", f"{shown(key)} is there twice")
        seen.add(key)


def only_true(fields: Fields, name: str) -> bool:
    """Whether a flag is set; one that is false must be left out."""
    if fields.flag_or_none(name) is False:
        fields.problem(name, "must be true or left out")
    return fields.flag(name)


def node_selector(fields: Fields) -> None:
    """A core/v1 NodeSelector."""
    terms = fields.children("nodeSelectorTerms")
    if not terms:
        fields.problem("nodeSelectorTerms", "is required")
    for term in terms:
        node_selector_term(term)


def node_selector_term(term: Fields) -> None:
    """A core/v1 NodeSelectorTerm."""
    for requirement in term.children("matchExpressions"):
        text(requirement, "key", label_key)
        texts(requirement, "values", label_value)
        _values(requirement)
    for requirement in term.children("matchFields"):
        one_of(requirement, "key", ("metadata.name",))
        one_of(requirement, "operator", ("In", "NotIn"))
        texts(requirement, "values", dns_subdomain)
        if len(requirement.texts("values")) != 1:
            requirement.problem("values", "must have one entry")


def _values(requirement: Fields) -> None:
    one_of(requirement, "operator", ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    operator, count = requirement.text("operator"), len(requirement.texts("values"))
    if operator in {"In", "NotIn"} and not count:
        requirement.problem("values", f"is required for {operator}")
    if operator in {"Exists", "DoesNotExist"} and count:
        requirement.problem("values", f"must be left out for {operator}")
    if operator in {"Gt", "Lt"} and count != 1:
        requirement.problem("values", f"must have one entry for {operator}")


def taint(fields: Fields) -> None:
    """A taint of a device."""
    text(fields, "key", label_key)
    text(fields, "value", label_value, required=False)
    one_of(fields, "effect", _EFFECTS)


def toleration(fields: Fields) -> None:
    """A toleration."""
    text(fields, "key", label_key, required=False)
    text(fields, "value", label_value, required=False)
    one_of(fields, "operator", ("Exists", "Equal"), required=False)
    one_of(fields, "effect", _EFFECTS, required=False)
    if fields.text("operator") == "Exists" and fields.text("value"):
        fields.problem("value", "must be left out for Exists")


def binding_conditions(fields: Fields) -> None:
    """Binding conditions and binding failure conditions: both or none."""
    names = ("bindingConditions", "bindingFailureConditions")
    if not any(map(fields.has, names)):
        return
    wanted, failing = (fields.texts(name) for name in names)
    for name in names:
        distinct_texts(fields, name, _MAX_CONDITIONS, label_key)
    for i, condition in enumerate(failing):
        if condition in wanted:
            fields.problem(f"bindingFailureConditions[{i}]", f"{shown(condition)} is a binding condition as well")
    if bool(wanted) != bool(failing):
        fields.problem(names[1] if wanted else names[0], f"is required with {names[0] if wanted else names[1]}")


def selectors(fields: Fields, check: Callable[[str], str | None] | None) -> None:
    """CEL selectors."""
    for each in children(fields, "selectors", _MAX_SELECTORS):
        expression(each.child("cel"), check)


def expression(fields: Fields, check: Callable[[str], str | None] | None) -> None:
    """One CEL expression."""
    source = fields.text("expression")
    if not source:
        fields.problem("expression", "is required")
    elif utf8_length(source) > _MAX_EXPRESSION:
        fields.problem("expression", f"is longer than {_MAX_EXPRESSION} bytes")
    elif check is not None and (wrong := check(source)):
        fields.problem("expression", wrong)


def opaque(fields: Fields) -> None:
    """Configuration for a driver."""
    part = fields.child_or_none("opaque")
    if part is None:
        fields.problem("opaque", "is required")
        return
    text(part, "driver", driver_name)
    parameters = part.data.get("parameters")
    if parameters is None:
        part.problem("parameters", "is required")
    elif not isinstance(parameters, dict):
        part.problem("parameters", f"{shown(parameters)} is not an object")
    elif len(jsontext.dumps(parameters).encode(errors="surrogatepass")) > _MAX_PARAMETERS:
        part.problem("parameters", f"is longer than {_MAX_PARAMETERS} bytes")
