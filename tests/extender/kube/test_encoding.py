"""Reading API objects: what is slow to read keeps nobody waiting."""

import asyncio
import time

import pytest

from extender.kube.encoding import dumps, loads, loads_aside
from extender.tools.offload import in_thread


def _deep(members: int) -> bytes:
    """An object as an API server takes it: its managed fields are nested 9,000 levels deep."""
    wide = ",".join(f'"f:{number}":{{}}' for number in range(members))
    return (b'{"metadata":{"managedFields":[' + b'{"f:a":' * 9000 + b"{%b}" % wide.encode() + b"}" * 9000) + b"]}}"


@pytest.mark.parametrize("members", [1, 20_000], ids=["narrow", "wide"])
async def test_an_object_read_aside_is_what_it_would_be_otherwise(members: int) -> None:
    text = _deep(members)
    assert dumps(await loads_aside(text, in_thread)) == dumps(loads(text)) == text


async def test_while_an_odd_object_is_read_others_are_answered() -> None:
    reading = asyncio.create_task(loads_aside(_deep(1), in_thread))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "one turn begins the reading, another one ends it"


def _opaque(length: int) -> bytes:
    """A claim with 20 opaque parameters, in which Go writes each character as an escape."""
    config = b'{"opaque":{"driver":"x","parameters":{"a":"%b"}}}' % (rb"\u003c" * length)
    return b'{"spec":{"devices":{"config":[%b]}}}' % b",".join([config] * 20)


async def test_while_long_opaque_parameters_are_read_others_are_answered() -> None:
    text = _opaque(50_000)
    reading = asyncio.create_task(loads_aside(text, in_thread))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "one turn begins the reading, another one ends it"
    assert dumps(await reading) == text


def test_the_time_for_opaque_parameters_grows_with_their_length_alone() -> None:
    def seconds(length: int) -> float:
        text = _opaque(length)
        began = time.process_time()
        for _ in range(5):
            loads(text)
        return time.process_time() - began

    short = min(seconds(500) for _ in range(3))
    assert min(seconds(5_000) for _ in range(3)) < 25 * short
