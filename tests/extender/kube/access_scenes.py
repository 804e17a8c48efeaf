"""An API server that knows users and rights."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import orjson

from extender.kube.connection.transport import HttpReply, HttpRequest, NotSentError

BOB = {"username": "bob", "uid": "17", "groups": ["system:authenticated"], "extra": {"scopes": ["a", "b"]}}


@dataclass
class ApiServer:
    """The reviews of an API server, at the transport's level.

    Attributes:
        users: by token, as in the status of a TokenReview.
        audiences: by token; other tokens are for the API server.
        rights: user, verb and path; a path may end with an asterisk.
        asked: what was sent: kind and spec.
        token_status: of each TokenReview, instead of that which follows from the users.
        down: whether nobody answers.
        may_answer: until it is set, answers wait.
    """

    users: dict[str, Mapping[str, Any]] = field(default_factory=lambda: {"bobs": BOB})
    audiences: dict[str, list[str]] = field(default_factory=dict)
    rights: set[tuple[str, str, str]] = field(default_factory=lambda: {("bob", "get", "/devices")})
    asked: list[tuple[str, Any]] = field(default_factory=list)
    token_status: object = None
    down: bool = False
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    def allow(self, user: str, *paths: str) -> None:
        """Give a user the right to get and post some paths."""
        self.rights |= {(user, verb, path) for verb in ("get", "post") for path in paths}

    async def call(self, request: HttpRequest) -> HttpReply:
        body = orjson.loads(request.body or b"{}")
        kind, spec = body["kind"], body["spec"]
        self.asked.append((kind, spec))
        await self.may_answer.wait()
        if self.down:
            raise NotSentError("connection refused")
        if kind == "TokenReview":
            status = self._token(spec) if self.token_status is None else self.token_status
        else:
            status = self._access(spec)
        return HttpReply(201, orjson.dumps({**body, "status": status}))

    def stream(self, request: HttpRequest) -> Any:
        raise AssertionError(request)

    def _token(self, spec: Any) -> object:
        user = self.users.get(spec["token"])
        wanted = spec.get("audiences", ["api"])
        audiences = [each for each in self.audiences.get(spec["token"], ["api"]) if each in wanted]
        if user is None or not audiences:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user, **({"audiences": audiences} if "audiences" in spec else {})}

    def _access(self, spec: Any) -> object:
        wanted = spec["nonResourceAttributes"]
        given = [path for user, verb, path in self.rights if (user, verb) == (spec["user"], wanted["verb"])]
        return {"allowed": any(fnmatchcase(wanted["path"], path) for path in given)}
