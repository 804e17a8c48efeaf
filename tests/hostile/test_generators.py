"""What the generators of hostile cases promise: the same for the same seed, and nothing left out."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest

from extender.cluster.kinds import all_kinds
from extender.kube.resources import RESOURCES
from tests.hostile.objects import HostileObjects, places_in, replaced
from tests.hostile.requests import GETS, HostileRequests, bodies
from tests.hostile.scene import chosen_selectors
from tests.hostile.selectors import declarations, hostile_selectors
from tests.hostile.specimens import specimens
from tests.hostile.values import hostile_members, hostile_values
from tests.kit.clusters import Cluster


def test_valid_specimens_are_read_without_a_problem() -> None:
    kinds = all_kinds()
    read = [kinds[kind].parse(each) for kind, objects in specimens("x").items() for each in objects]
    assert len(read) >= len(RESOURCES)


def test_every_watched_kind_has_a_specimen() -> None:
    assert specimens("x").keys() == RESOURCES.keys()


class Asked(dict[str, Any]):
    """An object that knows which of its fields were asked for."""

    def __init__(self, value: Mapping[str, Any], asked: set[str]) -> None:
        self.asked = asked
        super().__init__({key: asked_about(each, asked) for key, each in value.items()})

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def asked_about(value: Any, asked: set[str]) -> Any:
    if isinstance(value, dict):
        return Asked(value, asked)
    return [asked_about(each, asked) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", RESOURCES)
def test_every_field_that_is_read_is_in_a_specimen(kind: str) -> None:
    asked: set[str] = set()
    there: set[str] = set()
    for each in specimens("x")[kind]:
        all_kinds()[kind].parse(Asked(each, asked))
        there |= {key for path in places_in(each) for key in path if isinstance(key, str)}
    # what only the oldest DeviceTaintRule had is looked for to be refused
    assert asked - there <= {"deviceClassName", "selectors"}


def test_objects_are_the_same_for_the_same_seed() -> None:
    assert [HostileObjects(7).make(n) for n in range(50)] == [HostileObjects(7).make(n) for n in range(50)]
    assert HostileObjects(7).make(3) != HostileObjects(8).make(3)


def test_first_round_reaches_every_place_of_every_kind_once() -> None:
    objects = HostileObjects(1)
    reached = [objects.place(number) for number in range(len(objects.places))]
    assert len(reached) == len(set(reached)) == len(objects.places)
    assert {place.kind for place in reached} == RESOURCES.keys()


def test_rounds_put_every_value_into_a_place() -> None:
    objects = HostileObjects(1)
    place = objects.places[-1]
    told = {objects.values.at(str(place), turn).name for turn in range(len(objects.values))}
    assert told == {*(each.name for each in hostile_values()), *(each.name for each in hostile_members())}


@pytest.mark.parametrize("hostile", [*hostile_values(), *hostile_members()], ids=lambda each: str(each.name))
def test_value_replaces_one_place_and_nothing_else(hostile: Any) -> None:
    made = replaced({"before": 1, "spec": {"name": "n"}, "after": 2}, ("spec", "name"), hostile)
    assert made.startswith(b'{"before":1,"spec":{')
    assert made.endswith(b'},"after":2}')
    assert b"@hole@" not in made


def test_value_in_a_list_replaces_an_element() -> None:
    (null,) = (each for each in hostile_values() if each.name == "null")
    assert orjson.loads(replaced({"a": [1, 2]}, ("a", 0), null)) == {"a": [None, 2]}


def test_every_declared_function_and_macro_has_selectors() -> None:
    reached = {each.of for each in hostile_selectors()}
    assert set(declarations()) <= reached


def test_a_few_selectors_reach_every_declaration() -> None:
    wanted = set(declarations())
    assert wanted <= {each.of for each in chosen_selectors(1, len(wanted) + 30)}


def test_selectors_are_numbered_and_the_same_for_the_same_seed() -> None:
    assert [each.number for each in hostile_selectors()] == list(range(len(hostile_selectors())))
    assert chosen_selectors(5, 20) == chosen_selectors(5, 20)
    assert chosen_selectors(5, 20) != chosen_selectors(6, 20)


def test_requests_are_the_same_for_the_same_seed() -> None:
    one, other = HostileRequests(3, 10), HostileRequests(3, 10)
    assert [one.make(n).as_bytes() for n in range(100)] == [other.make(n).as_bytes() for n in range(100)]


def documented() -> Iterator[tuple[str, str]]:
    """Method and path of every endpoint."""
    for path, operations in Cluster.of().app().openapi()["paths"].items():
        yield from ((method, path) for method in operations)


def test_every_endpoint_is_among_the_targets() -> None:
    targets = {("post", path) for path in bodies()} | {("get", path) for path in GETS}
    targets |= {("get", "/explain/{namespace}/{pod}"), ("get", "/explain/{namespace}/claims/{claim}")}
    targets |= {("get", "/console/files/{name}")}
    without_end = {("get", "/console/changes")}
    assert set(documented()) <= targets | without_end


def test_requests_of_a_run_are_of_every_sort() -> None:
    requests = HostileRequests(1, 10)
    sorts = {requests.make(number).told.partition(",")[0] for number in range(1500)}
    assert set(bodies()) <= sorts
