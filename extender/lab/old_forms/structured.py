"""Structured parameters of resource.k8s.io/v1alpha2: as selectors and configuration of classes and requests."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocator.tools import jsontext
from extender.lab.old_forms.changes import Changes, Object, mapping, mappings

CLAIM_PARAMETERS: Final = "ResourceClaimParameters"
CLASS_PARAMETERS: Final = "ResourceClassParameters"

_ATTRIBUTES: Final = re.compile(r"\battributes\.(\w+)")
_PLACES: Final[Mapping[str, str]] = {
    "quantity": "capacity",
    **dict.fromkeys(("bool", "int", "string", "version"), "attributes"),
}
"""Where a device has today what an attribute of a type was."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a claim that parameters become: requests and configuration."""

    requests: Sequence[Object]
    config: Sequence[Object]


def requests_of(parameters: Mapping[str, Any], class_name: str, path: str, changes: Changes) -> Parts:
    """The requests for what the parameters of a claim ask for.

    Args:
        parameters: a ResourceClaimParameters.
        class_name: the device class of the claim.
        path: of the field that names the parameters, for problems.
        changes: told what is lost.
    """
    requests: list[Object] = []
    config: list[Object] = []
    known = ("apiVersion", "kind", "metadata", "generatedFrom", "shareable", "driverRequests")
    changes.lose_others(parameters, path, known)
    if parameters.get("shareable") is False:
        changes.lose(
            f"{path}.shareable", "any number of pods can use a claim; write a claim template for one claim each"
        )
    for number, of_driver in enumerate(mappings(parameters.get("driverRequests"))):
        at, driver = f"{path}.driverRequests[{number}]", str(of_driver.get("driverName") or "")
        changes.lose_others(of_driver, at, ("driverName", "requests", "vendorParameters"))
        names: list[str] = []
        for index, each in enumerate(mappings(of_driver.get("requests"))):
            changes.lose_others(each, f"{at}.requests[{index}]", ("namedResources", "vendorParameters"))
            name = f"request-{len(requests)}"
            names.append(name)
            selector = f"{at}.requests[{index}].namedResources.selector"
            expression = expression_of(mapping(each.get("namedResources")).get("selector"), driver, selector, changes)
            exactly = {"deviceClassName": class_name, "selectors": [{"cel": {"expression": expression}}]}
            requests.append({"name": name, "exactly": exactly})
            config += _config(driver, each.get("vendorParameters"), [name])
        config += _config(driver, of_driver.get("vendorParameters"), names)
    return Parts(requests, config)


def class_spec(driver: str, parameters: Mapping[str, Any], path: str, changes: Changes) -> Object:
    """The spec of the device class for a class whose devices the scheduler allocates.

    Args:
        driver: of the class.
        parameters: a ResourceClassParameters; empty if the class names none.
        path: of the field that names the parameters, for problems.
        changes: told what is lost.
    """
    changes.lose_others(
        parameters, path, ("apiVersion", "kind", "metadata", "generatedFrom", "filters", "vendorParameters")
    )
    filters = {
        str(each.get("driverName") or driver): expression_of(
            mapping(each.get("namedResources")).get("selector"),
            str(each.get("driverName") or driver),
            f"{path}.filters[{index}].namedResources.selector",
            changes,
        )
        for index, each in enumerate(mappings(parameters.get("filters")))
    }
    of_vendor = mappings(parameters.get("vendorParameters"))
    drivers = dict.fromkeys((driver, *filters, *(str(each.get("driverName") or driver) for each in of_vendor)))
    ways = [filters.get(each) or of_driver(each) for each in drivers]
    expression = ways[0] if len(ways) == 1 else " || ".join(f"({each})" for each in ways)
    config = [
        part for each in of_vendor for part in _config(str(each.get("driverName") or driver), each.get("parameters"))
    ]
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    return {**spec, "config": config} if config else spec


def expression_of(selector: object, driver: str, path: str, changes: Changes) -> str:
    """A selector of named resources as an expression over a device of a driver."""
    if not isinstance(selector, str) or selector.strip() in {"", "true"}:
        return of_driver(driver)
    for type_ in sorted({each for each in _ATTRIBUTES.findall(selector) if each not in _PLACES}):
        changes.lose(path, f"attributes.{type_}: write the condition with attributes that devices have today")
    quoted = jsontext.dumps(driver)

    def place(found: re.Match[str]) -> str:
        return f"device.{_PLACES.get(found[1], 'attributes')}[{quoted}]"

    return f"{of_driver(driver)} && ({_ATTRIBUTES.sub(place, selector)})"


def of_driver(driver: str) -> str:
    """The expression that selects all devices of a driver."""
    return f"device.driver == {jsontext.dumps(driver)}"


def _config(driver: str, parameters: object, requests: Iterable[str] = ()) -> Iterator[Object]:
    if parameters is not None:
        opaque = {"opaque": {"driver": driver, "parameters": parameters}}
        names = list(requests)
        yield {"requests": names, **opaque} if names else opaque
