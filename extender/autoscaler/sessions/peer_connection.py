"""HTTPS to other replicas: at the address of their pod, with a certificate for the name that all replicas have."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from extender.autoscaler.sessions.peers import FORWARDED, SESSION, PassedCall, PeerReply, PeerUnreachableError
from extender.config.settings import AUTOSCALER_PREFIX
from extender.tools.intake import Budget, Source
from extender.tools.text_file import UnreadableError, read_bytes

_CONNECTING_SECONDS: Final = 5.0
"""A replica whose node is gone does not refuse a connection: it stays silent. A busy replica needs time."""


_COPIES: Final = 2
"""Of an answer in memory: its pieces, and the whole."""


@dataclass(frozen=True, slots=True)
class PeerConnection:
    """Calls to other replicas over TLS 1.3, each on a connection of its own.

    The files are read for each call. What their authorities come to for TLS is made once, until they change.

    Attributes:
        server_name: the name in the replicas' certificates.
        port: of their listener for callers off the node.
        ca: file of the authorities that issue the replicas' certificates, in PEM.
        token: file of a token of our service account.
        deadline_seconds: for one call.
        budget: for the memory of answers.
    """

    server_name: str
    port: int
    ca: Path
    token: Path
    deadline_seconds: float
    budget: Budget
    _trusted: dict[bytes, ssl.SSLContext] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The authorities of the latest call, and TLS with them."""

    async def send(self, address: str, call: PassedCall) -> PeerReply:
        """The answer of the replica at an address.

        Raises:
            PeerUnreachableError: there is none, or the files of this replica can't be used.
        """
        token = _content(self.token).decode("ascii", errors="replace").strip()
        headers = {"Authorization": f"Bearer {token}", SESSION: call.session_id, FORWARDED: "1"}
        host = f"[{address}]" if ":" in address else address
        url = f"https://{host}:{self.port}{AUTOSCALER_PREFIX}/{call.verb}"
        # The certificate is for the service, and not for the address of a pod.
        more = {"sni_hostname": self.server_name}
        timeout = httpx.Timeout(self.deadline_seconds, connect=_CONNECTING_SECONDS)
        try:
            async with httpx.AsyncClient(verify=self._trust(), timeout=timeout, trust_env=False) as client:
                request = client.build_request("POST", url, content=call.body, headers=headers, extensions=more)
                return await self._answer(client, request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PeerUnreachableError(str(error) or type(error).__name__) from error

    async def _answer(self, client: httpx.AsyncClient, request: httpx.Request) -> PeerReply:
        found = await client.send(request, stream=True)
        pieces: list[bytes] = []
        with self.budget.room(Source.REPLICAS) as room:
            try:
                async for piece in found.aiter_bytes():
                    if not room.grow(_COPIES * len(piece)):
                        raise PeerUnreachableError("its answer is too long for the memory that is left")
                    pieces.append(piece)
            finally:
                await found.aclose()
            return PeerReply(found.status_code, b"".join(pieces))

    def _trust(self) -> ssl.SSLContext:
        pem = _content(self.ca)
        known = self._trusted.get(pem)
        if known is None:
            known = self._made(pem)
            self._trusted.clear()
            self._trusted[pem] = known
        return known

    def _made(self, pem: bytes) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=pem.decode("ascii", errors="replace"))
        except ssl.SSLError as error:
            raise PeerUnreachableError(f"{self.ca}: there is no certificate in PEM") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except UnreadableError as error:
        raise PeerUnreachableError(f"{path}: {error}") from error
