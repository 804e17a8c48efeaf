"""What changed requests promise: the same for the same seed, every endpoint, and no fault in a short round."""

import orjson
import pytest

from tests.corpus.recording import Entry
from tests.hostile.fuzzing import FuzzedRequests, ValidRequest, documented, recorded
from tests.hostile.requests import SESSION
from tests.hostile.rounds import play_round
from tests.kit.clusters import GPU, Cluster, local_slice, node


def call(request: str, status: int = 200) -> Entry:
    return Entry("world-000/00", "a call", request, status)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('POST /filter  {"Pod":{}}', ValidRequest("POST", "/filter", body={"Pod": {}})),
        ("restricted GET /pods?limit=1  ", ValidRequest("GET", "/pods?limit=1")),
        (
            "POST /autoscaler/filter {'session': 'abc'} {}",
            ValidRequest("POST", "/autoscaler/filter", ((b"session", SESSION),), body={}),
        ),
    ],
)
def test_a_recorded_call_is_read(text: str, found: ValidRequest) -> None:
    assert list(recorded([call(text)])) == [found]


def test_what_is_no_call_over_http_is_left_out() -> None:
    assert list(recorded([call("simulate -o table"), call("POST /filter  {}", 0), call("POST /filter  {")])) == []


def test_every_endpoint_of_the_document_is_reached_and_a_seed_makes_the_same_requests() -> None:
    document = Cluster.of(node("n"), GPU, local_slice("n")).app().openapi()
    found = list(documented(document))
    assert {(each.method.lower(), each.path) for each in found} == {
        (method, path) for path, operations in document["paths"].items() for method in operations
    }
    made, again = (FuzzedRequests("seed", found, document) for _ in range(2))
    cases = [made.make(number) for number in range(1500)]
    assert cases[:50] == [again.make(number) for number in range(50)]
    fixed = {each.path for each in found if not each.in_path}
    assert fixed <= {case.target.partition(b"?")[0].decode() for case in cases}
    assert any(case.body and orjson.loads(case.body) for case in cases[:20])


def test_a_short_round_has_no_fault() -> None:
    played = play_round((1, 3, range(150)))
    assert played.answers.total() == 150
    assert list(played.found.findings) == []
