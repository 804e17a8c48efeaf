"""All objects of a kind at once, read in pages."""

import pytest

from extender.kube.api import ApiError, key_of
from extender.kube.connection.transport import HttpRequest
from extender.kube.resources import CLAIMS
from tests.extender.kube.live_scenes import api_over, make_claim
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import run


def three_claims() -> FakeApi:
    fake = FakeApi()
    for name in "abc":
        fake.put(CLAIMS, make_claim(name))
    return fake


def test_all_pages_are_one_list() -> None:
    listing = run(api_over(three_claims(), page_size=2).list(CLAIMS))
    assert [key_of(obj).name for obj in listing.items] == ["a", "b", "c"]
    assert listing.revision == 103


def test_pages_that_expire_are_read_from_the_beginning() -> None:
    fake, pages = three_claims(), 0

    def fault_for(request: HttpRequest) -> Fault:
        nonlocal pages
        pages += "limit" in request.query
        if pages == 2:
            fake.put(CLAIMS, make_claim("d"))
            fake.compact()
        return Fault()

    fake.fault_for = fault_for
    listing = run(api_over(fake, page_size=2).list(CLAIMS))
    assert [key_of(obj).name for obj in listing.items] == ["a", "b", "c", "d"]
    assert listing.revision == 104


def test_pages_that_expire_again_and_again_are_given_up() -> None:
    fake = three_claims()
    fake.fault_for = lambda request: Fault(410, reason="Expired") if "continue" in request.query else Fault()
    with pytest.raises(ApiError, match="fault"):
        run(api_over(fake, page_size=2).list(CLAIMS))
    assert len(fake.lists(CLAIMS)) == 6


def test_a_refusal_is_not_asked_for_again() -> None:
    fake = three_claims()
    fake.fault_for = lambda _: Fault(403, reason="Forbidden")
    with pytest.raises(ApiError, match="fault"):
        run(api_over(fake, page_size=2).list(CLAIMS))
    assert len(fake.lists(CLAIMS)) == 1
