"""The law of resource classes: the device class selects exactly the devices that the requirements describe."""

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Device, Quantity, Selectors, Version, parse_slice
from extender.cluster.objects.resource_classes import Operator, PropertyRequirement, ResourceClass
from extender.kube.claim_rules import check_expression
from extender.plugins.resource_classes.device_class import judge
from tests.kit.objects.parts import api_object, slice_spec

EXAMPLES = int(os.environ.get("RESOURCE_CLASS_EXAMPLES", "50"))
DRIVER = "gpu.example.com"
KEYS = ("memory", "model", "ecc", "gpu.example.com/memory", "other.example.com/model", "driverVersion")
AMOUNTS = ("0", "-3", "40", "41", "40.5", "15G", "16Gi", "15000000000", "17179869184", "100m", "9223372036854775808")
VERSIONS = ("1.2.3", "1.10.0", "1.2.3-rc.1", "2.0.0+build")
TEXTS = ("k80", "p100", "true", "false", "", 'a"b\\c', "größe", "40G", "1e3", "100GBPS", "10Gbps")

attributes = st.one_of(
    st.sampled_from([*TEXTS, *AMOUNTS[:6], *VERSIONS]).map(lambda text: {"string": text}),
    st.sampled_from([-3, 0, 40, 41, 15000000000, 2**63 - 1, -(2**63)]).map(lambda number: {"int": number}),
    st.booleans().map(lambda truth: {"bool": truth}),
    st.sampled_from(VERSIONS).map(lambda version: {"version": version}),
)
devices = st.fixed_dictionaries(
    {
        "attributes": st.dictionaries(st.sampled_from(KEYS), attributes, max_size=4),
        "capacity": st.dictionaries(
            st.sampled_from(KEYS), st.sampled_from(AMOUNTS[2:10]).map(lambda amount: {"value": amount}), max_size=3
        ),
    }
)
requirements = st.one_of(
    st.builds(
        PropertyRequirement,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(st.sampled_from([*TEXTS, *AMOUNTS, *VERSIONS, "40GBPS"]), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(PropertyRequirement, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        PropertyRequirement,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.GREATER, Operator.LESS]),
        st.sampled_from([*AMOUNTS, *VERSIONS, "40GBPS", "15Gbps"]).map(lambda value: (value,)),
    ),
)
classes = st.lists(st.lists(requirements, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)


def amount(text: str) -> Decimal | None:
    try:
        return Decimal(Quantity.parse(text[:-3] if text.lower().endswith("bps") else text).nano)
    except ValueError:
        return None


def version(text: str) -> Version | None:
    try:
        return Version.parse(text)
    except ValueError:
        return None


def sign_of(value: object, limit: str) -> int | None:
    """Whether a property is less than, equal to or greater than a limit; None: it has no order to the limit."""
    number, ordered = amount(limit), version(limit)
    if number is not None:
        found: Any = Decimal(value * 10**9) if type(value) is int else None
        found = Decimal(value.nano) if isinstance(value, Quantity) else found
        found = amount_of_text(value, limit) if isinstance(value, str) else found
        return None if found is None else int(found > number) - int(found < number)
    found = version(value) if isinstance(value, str) else value
    if ordered is None or not isinstance(found, Version):
        return None
    return int(found > ordered) - int(found < ordered)


def amount_of_text(text: str, limit: str) -> Decimal | None:
    """What a driver has published as a text has the unit of a rate only if the limit has it."""
    is_rate = limit.lower().endswith("bps")
    return amount(text) if is_rate or not text.lower().endswith("bps") else None


def equals(value: object, text: str) -> bool:
    """Whether a property is what a value of In writes."""
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, int):
        return text == str(value)
    return sign_of(value, text) == 0 and (isinstance(value, Quantity) or version(text) is not None)


def meets(device: Device, requirement: PropertyRequirement) -> bool:
    """Whether a device meets a requirement, by the words of the documentation."""
    key = requirement.key if "/" in requirement.key else f"{DRIVER}/{requirement.key}"
    value = device.attributes.get(key, device.quantities.get(key))
    match requirement.operator:
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.IN:
            return value is not None and any(equals(value, text) for text in requirement.values)
        case Operator.NOT_IN:
            return value is None or not any(equals(value, text) for text in requirement.values)
        case Operator.GREATER:
            return value is not None and sign_of(value, requirement.values[0]) == 1
        case Operator.LESS:
            return value is not None and sign_of(value, requirement.values[0]) == -1


def published(*bodies: Mapping[str, Any]) -> tuple[Device, ...]:
    named = [{"name": f"gpu-{number}", **_without_twins(body)} for number, body in enumerate(bodies)]
    return parse_slice(api_object("ResourceSlice", "a", spec=slice_spec("a", named, nodeName="a"))).devices


def _without_twins(body: Mapping[str, Any]) -> dict[str, Any]:
    """A device names nothing twice, with and without its own domain."""
    return {
        field: {key: value for key, value in values.items() if not ("/" in key and key.rpartition("/")[2] in values)}
        for field, values in body.items()
    }


@settings(max_examples=EXAMPLES)
@given(st.lists(devices, min_size=1, max_size=6), classes, st.booleans())
def test_device_class_selects_the_devices_that_the_requirements_describe(
    bodies: list[Mapping[str, Any]], selectors: tuple[tuple[PropertyRequirement, ...], ...], has_base: bool
) -> None:
    resource_class = ResourceClass("gold", "uid-gold", "example.com/gpu", selectors)
    base = api_object("DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu", "selectors": []})
    judged = judge([resource_class], [base] if has_base and selectors else [], "resource.k8s.io/v1")
    assert judged[0].device_class is not None, judged[0].message
    expressions = [each["cel"]["expression"] for each in judged[0].device_class["spec"]["selectors"]]
    assert [check_expression(each) for each in expressions] == [None] * len(expressions)
    known = Selectors()
    for device in published(*bodies):
        wanted = not selectors or any(all(meets(device, each) for each in term) for term in selectors)
        assert all(known.matches(each, device) for each in expressions) == wanted, (expressions, device.attributes)
