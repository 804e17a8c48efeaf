"""Runs a command that asks somebody; errors become messages and exit codes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from extender.cli.messages import fail
from extender.cli.remote import RemoteError
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kubectl.place import Place
from extender.kubectl.sources.source import AnswerSource, SourceError, open_source

_T = TypeVar("_T")


def run(place: Place, ask: Callable[[AnswerSource], Awaitable[_T]]) -> _T:
    """What is asked of the source of a place; ends the command if nobody answers."""

    async def asked() -> _T:
        async with open_source(place) as source:
            return await ask(source)

    try:
        return asyncio.run(asked())
    except SourceError as error:
        fail(*error.problems)
    except (RemoteError, ApiError, OutcomeUnknownError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
