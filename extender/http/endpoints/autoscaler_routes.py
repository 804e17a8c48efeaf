"""The paths of the autoscaler's verbs. A call whose session another replica has is passed on to that replica."""

from typing import Final

from starlette.requests import Request

from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.sessions.peers import FORWARDED, SESSION, PassedCall
from extender.autoscaler.verbs.start import START
from extender.autoscaler.verbs.table import AUTOSCALER_VERBS
from extender.config.settings import AUTOSCALER_PREFIX
from extender.http.callers.guard import USER
from extender.http.verb_endpoints import Application, Elsewhere, Endpoints, nowhere_else

_LONGEST_CALLER: Final = 100
"""Characters of the name of a caller that are kept with a session."""


def add_autoscaler_routes(app: Application, autoscaler: Autoscaler, endpoints: Endpoints) -> None:
    """All of them, under a prefix of their own."""

    def by(request: Request) -> InSession:
        return InSession(autoscaler, request.headers.get(SESSION), _caller(request), _owner(request))

    for verb in AUTOSCALER_VERBS:
        path, name = f"{AUTOSCALER_PREFIX}/{verb.name}", f"autoscaler/{verb.name}"
        elsewhere = nowhere_else if verb is START else _passing_on(verb.name, autoscaler)
        app.add_verb(endpoints.route(path, name, verb, by, "autoscaler", elsewhere))


def _caller(request: Request) -> str:
    name = str(request.scope.get(USER) or request.headers.get("user-agent", ""))
    return name[:_LONGEST_CALLER]


def _owner(request: Request) -> str:
    """The user of a caller off the node; on loopback, where nobody is known, the address."""
    user = request.scope.get(USER)
    return f"user {user}" if user else f"address {request.client.host if request.client else ''}"


def _passing_on(verb: str, autoscaler: Autoscaler) -> Elsewhere:
    """Passes calls on whose session another replica has."""

    async def pass_on(request: Request, body: bytes) -> bytes | None:
        session, peers = request.headers.get(SESSION), autoscaler.peers
        if peers is None or session is None or FORWARDED in request.headers or not peers.owner(session):
            return None
        return await peers.answer(PassedCall(verb, session, body))

    return pass_on
