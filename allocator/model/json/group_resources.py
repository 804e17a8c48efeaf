"""Group resources: annotations by which the extended resource of a DeviceClass stands for several classes (KEP-14)."""

from collections.abc import Mapping
from typing import Final

from allocator.model.claims import MAX_RESULTS
from allocator.model.device_classes import GroupResource
from allocator.tools import jsontext
from allocator.tools.fields import Fields
from allocator.tools.names import dns_subdomain, full_name
from allocator.tools.printable import shown

MEMBERS: Final = "dra-extender.dev/members"
"""Annotation of a DeviceClass: device classes and numbers of devices, as a JSON object."""

MATCH_ATTRIBUTE: Final = "dra-extender.dev/match-attribute"
"""Annotation of a DeviceClass with members: the attribute of which all devices have the same value."""


def read_group(metadata: Fields) -> GroupResource | None:
    """The group resource of a class; None if it has no members."""
    annotations = metadata.text_mapping("annotations")
    text, attribute = annotations.get(MEMBERS), annotations.get(MATCH_ATTRIBUTE)
    if text is None:
        if attribute is not None:
            metadata.problem(f"annotations[{MATCH_ATTRIBUTE}]", f"needs the annotation {MEMBERS}")
        return None
    place = f"annotations[{MEMBERS}]"
    try:
        found = jsontext.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        metadata.problem(place, f"{shown(text)} is not a JSON object with a number for each device class")
        return None
    members = read_members(found, metadata, place)
    return GroupResource(members, read_match_attribute(attribute, metadata, f"annotations[{MATCH_ATTRIBUTE}]"))


def read_members(members: Mapping[str, object], fields: Fields, place: str) -> tuple[tuple[str, int], ...]:
    """Numbers of devices by device class; one claim has to hold them all. Problems are those of a place in fields."""
    found = []
    for name, count in sorted(members.items()):
        if wrong := dns_subdomain(name):
            fields.problem(f"{place}[{name}]", f"{shown(name)} {wrong}")
        elif not isinstance(count, int) or isinstance(count, bool) or count < 1:
            fields.problem(f"{place}[{name}]", f"{shown(count)} is not a number of devices")
        else:
            found.append((name, count))
    total = sum(count for _, count in found)
    if not members:
        fields.problem(place, "needs at least one device class")
    if total > MAX_RESULTS:
        fields.problem(place, f"has {total} devices, a claim can hold {MAX_RESULTS}")
    return tuple(found)


def read_match_attribute(attribute: str | None, fields: Fields, place: str) -> str:
    """The attribute of which all devices have the same value; empty if there is none."""
    if attribute is not None and (wrong := full_name(attribute)):
        fields.problem(place, f"{shown(attribute)} {wrong}")
    return attribute or ""
