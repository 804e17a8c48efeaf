"""The service as a process."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from tests.kit.places import ROOT


async def start(*arguments: str) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DRA_EXTENDER__LOG__FORMAT": "json"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "extender", "serve", *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """A process that serves, and its address; it is killed if it has not ended by then."""
    process = await start("--port", "0", *arguments)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stderr.readline()
        assert line, "it ended before it served"
        yield process, str(orjson.loads(line)["url"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
