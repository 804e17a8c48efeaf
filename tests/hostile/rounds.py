"""A round of changed requests: a world of the corpus, a service over it, and what it answers."""

import asyncio
import gc
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson
import structlog

from extender.config.settings import Settings
from extender.kube.api import ApiError
from extender.kube.resources import DAEMON_SETS, POOL_REQUESTS
from extender.lab.manifests import LOADED
from extender.tools.offload import at_once
from tests.corpus.chance import clocks
from tests.corpus.player import WORLDS, play
from tests.corpus.recording import Entry
from tests.corpus.stage import in_one_thread
from tests.corpus.worlds import world
from tests.hostile.fuzzing import FuzzedRequests, documented, recorded
from tests.hostile.inprocess import Found, LoggedErrors, deliver, slow_seconds
from tests.hostile.requests import SESSION, HostileRequest
from tests.kit import virtualtime
from tests.kit.clusters import Cluster, app_over

ROUND: Final = 5000
"""Requests to one service."""

_KINDS: Final = {**LOADED, DAEMON_SETS.kind: DAEMON_SETS, POOL_REQUESTS.kind: POOL_REQUESTS}


@dataclass
class Round:
    """What a round has seen.

    Attributes:
        answers: how often each status came.
        process: that has played it, and its bytes in memory afterwards.
    """

    number: int
    found: Found
    answers: Counter[str] = field(default_factory=Counter)
    process: tuple[int, int] = (0, 0)


def play_round(place: tuple[int, int, range]) -> Round:
    """Send the requests of a round: the seed, the number of the round, and the numbers of requests."""
    seed, number, numbers = place
    entries = play(number % WORLDS)
    outcome = Round(number, Found(slow_seconds()))
    gc.disable()  # a collection is nobody's fault
    try:
        with in_one_thread():
            virtualtime.run(_sent(f"{seed}/{number}", entries, numbers, outcome))
    finally:
        gc.enable()
        structlog.reset_defaults()
    gc.collect()
    outcome.process = os.getpid(), _resident()
    return outcome


async def _sent(seed: str, entries: list[Entry], numbers: range, outcome: Round) -> None:
    errors = LoggedErrors()
    structlog.configure(processors=[errors])
    made = world(outcome.number % WORLDS)
    with clocks(asyncio.get_running_loop().time):
        settings = Settings.model_validate({**made.settings, "controllers": []})
        cluster = Cluster.of(counts_resources=settings.features.node_resources)
        for each in [*made.objects, *(each for party in made.comes for each in party)]:
            with suppress(ApiError):  # its name is taken
                cluster.api.load(_KINDS[each["kind"]], each)
        app = app_over(cluster.extender(settings, at_once), settings)
    document = app.openapi()
    shown, played = list(documented(document)), list(recorded(entries))
    both = [*shown, *(played[index % len(played)] for index in range(len(shown)))] if played else shown
    requests = FuzzedRequests(seed, [*both, *played], document)
    session = b"none"
    for number in numbers:
        case = requests.make(number)
        answer = await deliver(outcome.found, _in_session(case, session), app, errors)
        outcome.answers[answer[9:12].decode()] += 1
        if case.target == b"/autoscaler/start" and answer[9:12] == b"200":
            session = orjson.loads(answer.partition(b"\r\n\r\n")[2]).get("Session", "none").encode()


def _in_session(case: HostileRequest, session: bytes) -> HostileRequest:
    headers = tuple((name, value.replace(SESSION, session)) for name, value in case.headers)
    return replace(case, headers=headers)


def _resident() -> int:
    """Bytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
