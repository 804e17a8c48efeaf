"""Text from outside that leaves again: no control character goes out by any door.

The doors are reasons of filter and errors of bind, Events, and conditions of pods.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.tools import printable
from extender.cluster.writes.events import Note
from extender.cluster.writes.pods import refused
from extender.framework.pods.negotiated_claims import unanswered
from extender.kube.api import ApiError, OutcomeUnknownError, UnreachableError
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerAwayError,
    ControllerError,
    ControllerPendingError,
    NegotiatedQuestion,
    NodeName,
    PodName,
    ProtocolError,
    answer_of,
)
from tests.extender.plugins.negotiation.scenes import Scene, pods
from tests.kit.controllers import Fault
from tests.kit.servers.memory import Fault as ApiFault
from tests.kit.virtualtime import in_virtual_time

EVIL = "\x1b[31mred\x1b[0m\n\u202eforged"
CLAIM = ClaimAsk("ns", "c", "uid-c", 1, ({"name": "seat"},))
TEXTS = st.sampled_from(["seat", "uid-c", "n", "", EVIL, "\x00", "\x9b2J", "\u2028"])
RESULT = st.fixed_dictionaries(
    {"request": TEXTS, "driver": TEXTS, "pool": TEXTS, "device": TEXTS}, optional={"shareID": TEXTS, EVIL: TEXTS}
)
CONFIG = st.fixed_dictionaries(
    {"source": TEXTS, "requests": st.lists(TEXTS, max_size=2)},
    optional={"opaque": st.fixed_dictionaries({"driver": TEXTS, "parameters": st.dictionaries(TEXTS, TEXTS)})},
)
ALLOCATION = st.fixed_dictionaries(
    {},
    optional={
        "devices": st.fixed_dictionaries(
            {}, optional={"results": st.lists(RESULT, max_size=2), "config": st.lists(CONFIG, max_size=2)}
        ),
        "nodeSelector": st.dictionaries(TEXTS, TEXTS),
    },
)
ENTRY = st.fixed_dictionaries(
    {"uid": TEXTS}, optional={"unsuitableNodes": st.dictionaries(TEXTS, TEXTS), "allocation": ALLOCATION, EVIL: TEXTS}
)
ANSWER = st.fixed_dictionaries(
    {}, optional={"version": TEXTS, "refused": TEXTS, "claims": st.lists(ENTRY, max_size=2), EVIL: TEXTS}
)


def texts(value: object) -> Iterator[str]:
    """The texts of an answer that are shown: refusals, and reasons of nodes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)


@given(st.sampled_from([UNSUITABLE_NODES, ALLOCATE, DEALLOCATE]), ANSWER)
def test_whatever_a_controller_answers_what_is_shown_of_it_is_printable(kind: str, answer: Mapping[str, Any]) -> None:
    question = NegotiatedQuestion(kind, (CLAIM,), PodName("ns", "p", "uid-p"), (NodeName("n"),))
    try:
        found = answer_of(question, answer)
    except ProtocolError as error:
        shown = [str(error)]
    else:
        shown = [found.refused, *texts(found.unsuitable)]
    assert all(text.isprintable() for text in shown)


@pytest.mark.parametrize(
    "error",
    [
        ControllerError(EVIL),
        ControllerAwayError(EVIL),
        ControllerPendingError(unanswered(EVIL)),
        ApiError(403, "Forbidden", f'admission webhook "{EVIL}" denied the request: {EVIL}'),
        UnreachableError("GET /api", EVIL),
        OutcomeUnknownError(f"claim {EVIL}", EVIL),
        refused(f"pod {EVIL}", ApiError(403, "Forbidden", EVIL)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_that_quote_others_are_printable(error: Exception) -> None:
    assert str(error).isprintable()
    assert all(text.isprintable() for text in error.args if isinstance(text, str))


ALLOCATED = {"devices": {"results": [{"request": EVIL, "driver": "d.example.com", "pool": "p", "device": "d"}]}}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(EVIL),
        Fault(fault=EVIL),
        Fault(answer={"claims": [{"uid": EVIL}]}),
        Fault(answer={"claims": [{"uid": "uid-p-c", "unsuitableNodes": {"n": EVIL, "m": EVIL}}]}),
        Fault(answer={"claims": [{"uid": "uid-p-c", "unsuitableNodes": {EVIL: EVIL}}]}),
    ],
)
@in_virtual_time
async def test_no_control_character_of_a_controller_reaches_a_reason_or_an_event(fault: Fault) -> None:
    scene = Scene(*pods("p"))
    scene.licenses.faults[UNSUITABLE_NODES] = [fault]
    reasons = await scene.reasons()
    assert reasons
    assert all(reason.isprintable() for reason in reasons)
    assert json.dumps(reasons).isascii()
    assert Note("DevicesUnavailable", printable("; ".join(reasons))).text.isprintable()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(EVIL),
        Fault(fault=EVIL),
        Fault(answer={"refused": EVIL}),
        Fault(answer={"claims": [{"uid": "uid-p-c", "allocation": ALLOCATED}]}),
    ],
)
@in_virtual_time
async def test_no_control_character_of_a_controller_reaches_the_error_of_a_bind(fault: Fault) -> None:
    scene = Scene(*pods("p"))
    scene.licenses.faults[ALLOCATE] = [fault]
    error = await scene.bind()
    assert error
    assert error.isprintable()


@in_virtual_time
async def test_no_control_character_of_a_webhook_reaches_the_error_of_a_bind() -> None:
    scene = Scene(*pods("p"))
    scene.transport.script("update resourceclaims", ApiFault(refused=ApiError(403, "Forbidden", EVIL)))
    error = await scene.bind()
    assert error
    assert error.isprintable()
