"""Who may come in: certificates, tokens and rights; what is remembered, and how often the API server is asked."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.access import AccessError, Clocks, Gate, Knock, Pace, Reviews, User, end_of, user_of_certificate
from extender.kube.encoding import dumps
from tests.extender.kube.access_scenes import BOB, ApiServer

JUNE = "Jun  1 12:00:00 2026 GMT"
ANN: Mapping[str, Any] = {
    "subject": ((("organizationName", "team-a"),), (("organizationName", "team-b"),), (("commonName", "ann"),)),
    "notAfter": JUNE,
}


@dataclass
class Scene:
    """A gate before an API server, with a clock."""

    server: ApiServer = field(default_factory=ApiServer)
    audience: str = ""
    now: float = 0.0

    def __post_init__(self) -> None:
        self.gate = Gate(Reviews(self.server, self.audience), Clocks(lambda: self.now, lambda: self.now))

    async def admit(self, *authorization: str, path: str = "/devices", verb: str = "get", **more: Any) -> User:
        return await self.gate.admit(
            Knock(
                **{"address": "10.0.0.7", "certificate": None, **more},
                authorization=authorization,
                verb=verb,
                path=path,
            )
        )

    async def refusal(self, *authorization: str, **knock: Any) -> tuple[int, str]:
        with pytest.raises(AccessError) as caught:
            await self.admit(*authorization, **knock)
        return caught.value.status, str(caught.value)


# --- who -----------------------------------------------------------------------------------------------------


def test_a_certificate_says_who_its_owner_is_as_for_an_api_server() -> None:
    assert user_of_certificate(ANN) == User("ann", groups=("team-a", "team-b", "system:authenticated"))
    assert user_of_certificate({"subject": ((("organizationName", "team-a"),),)}) is None


async def test_a_token_is_reviewed_and_its_user_too() -> None:
    scene = Scene()
    assert (await scene.admit("Bearer bobs")).name == "bob"
    assert scene.server.asked == [
        ("TokenReview", {"token": "bobs"}),
        (
            "SubjectAccessReview",
            {
                "user": "bob",
                "uid": "17",
                "groups": ["system:authenticated"],
                "extra": {"scopes": ["a", "b"]},
                "nonResourceAttributes": {"path": "/devices", "verb": "get"},
            },
        ),
    ]


async def test_a_certificate_needs_no_review_but_its_owner_needs_rights() -> None:
    scene = Scene()
    status, message = await scene.refusal(certificate=ANN)
    assert (status, message) == (403, 'user "ann" may not get path "/devices"')
    assert [kind for kind, _ in scene.server.asked] == ["SubjectAccessReview"]
    assert scene.server.asked[0][1]["groups"] == ["team-a", "team-b", "system:authenticated"]
    scene.server.rights.add(("ann", "get", "/pods"))
    assert (await scene.admit(certificate=ANN, path="/pods")).name == "ann"


async def test_a_certificate_that_has_ended_while_its_connection_stays_is_refused() -> None:
    scene = Scene(now=end_of(ANN) - 1)
    scene.server.rights.add(("ann", "get", "/devices"))
    assert (await scene.admit(certificate=ANN)).name == "ann"
    scene.now += 2
    status, message = await scene.refusal("Bearer bobs", certificate=ANN)
    assert (status, "has expired" in message) == (401, True)


async def test_a_certificate_without_a_name_leaves_it_to_the_token() -> None:
    nameless = {"subject": (), "notAfter": JUNE}
    scene = Scene()
    assert (await scene.admit("Bearer bobs", certificate=nameless)).name == "bob"
    status, message = await scene.refusal(certificate=nameless)
    assert (status, "no common name" in message) == (401, True)


@pytest.mark.parametrize(
    "authorization",
    [
        *((), ("",), ("Bearer",), ("Bearer ",), ("Basic Ym9iczo=",), ("bobs",)),
        *(("Bearer bobs bobs",), ("Bearer bób",), ("Bearer bobs", "Bearer bobs")),
    ],
)
async def test_without_credentials_that_can_be_read_nobody_is_asked(authorization: tuple[str, ...]) -> None:
    scene = Scene()
    status, message = await scene.refusal(*authorization)
    assert (status, "Authorization: Bearer <token>" in message) == (401, True)
    assert scene.server.asked == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER  "])
async def test_the_scheme_may_be_written_in_any_case(scheme: str) -> None:
    assert (await Scene().admit(f"{scheme} bobs")).name == "bob"


async def test_a_wrong_token_is_refused() -> None:
    status, message = await Scene().refusal("Bearer nonsense")
    assert (status, message) == (
        401,
        "the API server does not accept the token: it is wrong, or it has expired",
    )


async def test_a_token_for_others_is_refused() -> None:
    scene = Scene(audience="dra-extender")
    scene.server.users["ours"] = BOB
    scene.server.audiences["ours"] = ["dra-extender"]
    assert (await scene.admit("Bearer ours")).name == "bob"
    status, message = await scene.refusal("Bearer bobs")
    assert (status, 'for the audience "dra-extender"' in message) == (401, True)
    assert scene.server.asked[0] == ("TokenReview", {"token": "ours", "audiences": ["dra-extender"]})


async def test_an_api_server_that_does_not_check_audiences_vouches_for_nobody() -> None:
    scene = Scene(audience="dra-extender")
    scene.server.token_status = {"authenticated": True, "user": BOB}
    assert (await scene.refusal("Bearer bobs"))[0] == 401


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": "true", "user": BOB},
        {"authenticated": True},
        {"authenticated": True, "user": {"uid": "1"}},
    ],
)
async def test_an_answer_that_names_nobody_lets_nobody_in(status: object) -> None:
    scene = Scene()
    scene.server.token_status = status
    assert (await scene.refusal("Bearer bobs"))[0] == 401


# --- what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "path"), [("post", "/devices"), ("head", "/devices"), ("get", "/devices/")])
async def test_a_right_is_for_a_verb_and_a_path(verb: str, path: str) -> None:
    status, message = await Scene().refusal("Bearer bobs", verb=verb, path=path)
    assert (status, message) == (403, f'user "bob" may not {verb} path "{path}"')


# --- an API server that does not answer ----------------------------------------------------------------------


async def test_while_the_api_server_does_not_answer_nobody_new_comes_in() -> None:
    scene = Scene()
    await scene.admit("Bearer bobs")
    scene.server.down = True
    assert (await scene.admit("Bearer bobs")).name == "bob"
    scene.now = 11.0
    assert await scene.refusal("Bearer bobs") == (
        503,
        "the API server, which knows the callers, does not answer; try again",
    )
    scene.server.down = False
    assert (await scene.admit("Bearer bobs")).name == "bob"


# --- what is remembered --------------------------------------------------------------------------------------


async def test_answers_are_remembered_for_seconds_and_bad_ones_for_fewer() -> None:
    scene = Scene()
    for _ in range(5):
        await scene.admit("Bearer bobs")
        await scene.refusal("Bearer nonsense")
    assert len(scene.server.asked) == 3
    scene.server.users["nonsense"] = BOB
    del scene.server.users["bobs"]
    scene.now = 2.5
    assert [(await scene.admit(each)).name for each in ("Bearer bobs", "Bearer nonsense")] == ["bob", "bob"]
    scene.now = 10.5
    assert (await scene.refusal("Bearer bobs"))[0] == 401


async def test_a_right_that_is_given_counts_after_two_seconds_and_one_that_is_taken_after_ten() -> None:
    scene = Scene()
    assert (await scene.refusal("Bearer bobs", path="/pods"))[0] == 403
    scene.server.rights = {("bob", "get", "/pods")}
    scene.now = 2.5
    await scene.admit("Bearer bobs", path="/pods")
    scene.server.rights = set()
    scene.now = 12.0
    await scene.admit("Bearer bobs", path="/pods")
    scene.now = 13.0
    assert (await scene.refusal("Bearer bobs", path="/pods"))[0] == 403


async def test_who_asks_the_same_at_the_same_time_waits_for_one_answer_also_if_the_first_leaves() -> None:
    scene = Scene()
    scene.server.may_answer.clear()
    tasks = [asyncio.create_task(scene.admit("Bearer bobs")) for _ in range(10)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    scene.server.may_answer.set()
    assert [user.name for user in await asyncio.gather(*tasks[1:])] == ["bob"] * 9
    assert len(scene.server.asked) == 2


async def test_memory_is_bounded_whoever_calls() -> None:
    scene = Scene()
    await scene.admit("Bearer bobs")
    for number in range(3000):
        scene.now += 0.01
        await scene.refusal(f"Bearer wrong-{number}", address=f"10.0.{number % 250}.{number // 250}")
    assert len(scene.gate._users._bad) + len(scene.gate._users._bad._old) <= 1024
    scene.now = 9.0
    before = len(scene.server.asked)
    await scene.admit("Bearer bobs")
    assert len(scene.server.asked) == before


# --- how often the API server is asked -----------------------------------------------------------------------


async def refusals(scene: Scene, times: int, knock: Callable[[int], tuple[str, Mapping[str, Any]]]) -> list[int]:
    found = []
    for number in range(times):
        authorization, more = knock(number)
        found.append((await scene.refusal(authorization, **more))[0])
    return found


async def test_one_address_with_many_unknown_tokens_is_slowed_down_and_others_are_not() -> None:
    scene = Scene()
    found = await refusals(scene, 200, lambda number: (f"Bearer wrong-{number}", {}))
    assert (found.count(401), found.count(429)) == (40, 160)
    assert len(scene.server.asked) == 40
    assert (await scene.admit("Bearer bobs", address="10.0.0.8")).name == "bob"
    scene.now = 1.0
    found = await refusals(scene, 200, lambda number: (f"Bearer later-{number}", {}))
    assert (found.count(401), found.count(429)) == (20, 180)


async def test_a_token_that_was_let_in_is_reviewed_again_however_many_unknown_ones_its_address_sends() -> None:
    scene = Scene()
    await scene.admit("Bearer bobs")
    for scene.now in (11.0, 22.0):
        await refusals(scene, 500, lambda number: (f"Bearer wrong-{scene.now}-{number}", {}))
        assert (await scene.admit("Bearer bobs")).name == "bob"
    scene.server.users.clear()
    scene.now = 33.0
    assert (await scene.refusal("Bearer bobs"))[0] == 401
    await refusals(scene, 500, lambda number: (f"Bearer last-{number}", {}))
    scene.now = 36.0
    await refusals(scene, 500, lambda number: (f"Bearer again-{number}", {}))
    assert (await scene.refusal("Bearer bobs"))[0] == 429


def token_of(subject: object, number: int) -> str:
    """A token of the form of a service account's; its end makes it another one."""
    claims = urlsafe_b64encode(dumps({"iss": "https://kubernetes", "sub": subject})).decode().rstrip("=")
    return f"e30.{claims}.{number}"


async def test_a_user_that_was_let_in_gets_in_with_a_new_token_whatever_its_address_sends() -> None:
    scene = Scene()
    scene.server.users |= {token_of("bob", number): BOB for number in range(20)}
    await scene.admit(f"Bearer {token_of('bob', 0)}")
    await refusals(scene, 500, lambda number: (f"Bearer {token_of(f'nobody-{number}', 0)}", {}))
    for number in range(1, 5):
        assert (await scene.admit(f"Bearer {token_of('bob', number)}")).name == "bob"


async def test_who_claims_to_be_a_known_user_is_slowed_down_as_well() -> None:
    scene = Scene()
    scene.server.users[token_of("bob", 0)] = BOB
    await scene.admit(f"Bearer {token_of('bob', 0)}")
    before = len(scene.server.asked)
    found = await refusals(scene, 500, lambda number: (f"Bearer {token_of('bob', number + 1)}", {}))
    assert found.count(401) == len(scene.server.asked) - before == 44
    assert (await scene.refusal(f"Bearer {token_of('bob', 999)}", address="10.0.0.8"))[0] == 401


@pytest.mark.parametrize("claims", ["", "!", "e30", "W10", "bnVsbA", "eyJzdWIiOjF9", "eyJzdWIiOiAi77+9In0", "A" * 5000])
async def test_a_token_may_claim_anything(claims: str) -> None:
    scene = Scene()
    scene.server.users[f"a.{claims}.b"] = BOB
    assert (await scene.admit(f"Bearer a.{claims}.b")).name == "bob"


async def test_many_addresses_together_are_slowed_down() -> None:
    scene = Scene()
    found = await refusals(
        scene, 1000, lambda number: (f"Bearer wrong-{number}", {"address": f"10.0.1.{number % 250}"})
    )
    assert len(scene.server.asked) == found.count(401) == 200


async def test_a_host_that_changes_its_address_of_ipv6_is_one_caller() -> None:
    scene = Scene()
    await refusals(scene, 100, lambda number: (f"Bearer wrong-{number}", {"address": f"2001:db8::{number:x}"}))
    assert len(scene.server.asked) == 40


async def test_a_user_that_asks_for_ever_new_paths_is_slowed_down_alone() -> None:
    scene = Scene()
    scene.server.users["carols"] = {"username": "carol"}
    scene.server.rights.add(("carol", "get", "/devices"))
    found = await refusals(scene, 500, lambda number: ("Bearer bobs", {"path": f"/explain/a/{number}"}))
    assert (found.count(403), found.count(429)) == (100, 400)
    assert (await scene.admit("Bearer carols")).name == "carol"


async def test_a_known_caller_makes_no_requests() -> None:
    scene = Scene()
    for _ in range(1000):
        await scene.admit("Bearer bobs")
    assert len(scene.server.asked) == 2


@given(st.lists(st.floats(0.0, 3.0), max_size=60), st.floats(0.5, 5.0), st.integers(1, 5))
def test_a_pace_lets_no_more_through_than_burst_and_rate(pauses: list[float], rate: float, burst: int) -> None:
    now, allowed = 0.0, 0
    pace = Pace(rate, burst, lambda: now)
    for pause in pauses:
        now += pause
        allowed += pace.allows("one")
        assert allowed <= burst + now * rate + 1e-6
    now += 10.0
    assert pace.allows("one")
