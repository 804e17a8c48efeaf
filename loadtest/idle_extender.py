"""An extender that decides nothing: every node will do, and each claim gets devices that nobody has.

It writes what dra-extender writes for a pod: finalizer, allocation with reservation, Binding, over the same kind of
connection, behind the same kind of server. The rest of what a pod takes with dra-extender is for knowing and deciding.
"""

import argparse
import random
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import orjson
import uvicorn
import uvloop

from extender.cluster.live import connect
from extender.cluster.writes.reservations import is_protected, protected
from extender.faces.http.connections import OnePacketProtocol
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, key_of, timestamp
from extender.kube.connection.credentials import Origin
from extender.kube.resources import CLAIMS

_DRIVER: Final = "idle.example.com"
_NOT_MADE: Final = "the pod's claims are not made yet"
_KEEP_ALIVE_SECONDS: Final = 120

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class IdleExtender:
    """An ASGI application with kube-scheduler's verbs, and ``/readyz``.

    Args:
        claims: as they are now; others are read when they are needed.
    """

    def __init__(self, api: Api, claims: Iterable[RawObject], now: Callable[[], datetime]) -> None:
        self._api = api
        self._claims = {key_of(claim): claim for claim in claims}
        self._now = now
        self._numbers = count()
        self._claims_of: dict[str, tuple[ObjectKey, ...]] = {}
        self._verbs: dict[str, Callable[[RawObject], Awaitable[object]]] = {
            "/filter": self.filter,
            "/prioritize": self.prioritize,
            "/preempt": self.preempt,
            "/bind": self.bind,
        }

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        verb = self._verbs.get(scope["path"])
        reply = await verb(orjson.loads(await _body(receive))) if verb else {}
        body = orjson.dumps(reply)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def filter(self, args: RawObject) -> RawObject:
        """Every node, once the pod's claims have names."""
        claims = _claims_of(args["Pod"])
        if claims is None:
            return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(args["NodeNames"], _NOT_MADE)}
        self._claims_of[args["Pod"]["metadata"]["uid"]] = claims
        return {"NodeNames": args["NodeNames"]}

    async def prioritize(self, args: RawObject) -> list[RawObject]:
        """All the same."""
        return [{"Host": name, "Score": 0} for name in args["NodeNames"]]

    async def preempt(self, args: RawObject) -> RawObject:
        """What the scheduler has chosen."""
        return {"NodeNameToMetaVictims": args.get("NodeNameToMetaVictims") or {}}

    async def bind(self, args: RawObject) -> RawObject:
        """Allocate, reserve, bind."""
        name, uid, node = args["PodName"], args["PodUID"], args["Node"]
        try:
            for key in self._claims_of.pop(uid, ()):
                raw = self._claims.pop(key, None) or await self._api.get(CLAIMS, key)
                if not is_protected(raw):
                    raw = await self._api.update(CLAIMS, protected(raw))
                await self._api.update_status(CLAIMS, self._allocated(raw, name, uid, node))
            await self._api.bind_pod(ObjectKey(args["PodNamespace"], name), node, uid=uid)
        except (ApiError, OutcomeUnknownError) as error:
            return {"Error": str(error)}
        return {}

    def _allocated(self, claim: RawObject, pod: str, uid: str, node: str) -> RawObject:
        results = [
            {"request": request["name"], "driver": _DRIVER, "pool": node, "device": f"device-{next(self._numbers)}"}
            for request in claim["spec"]["devices"]["requests"]
            for _ in range(request["exactly"]["count"])
        ]
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        allocation = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            "allocationTimestamp": timestamp(self._now()),
        }
        consumer = {"resource": "pods", "name": pod, "uid": uid}
        return claim | {"status": {"allocation": allocation, "reservedFor": [consumer]}}


def _claims_of(pod: RawObject) -> tuple[ObjectKey, ...] | None:
    """The pod's claims; None if one has no name yet."""
    made = {
        each["name"]: each.get("resourceClaimName", "") for each in pod["status"].get("resourceClaimStatuses") or ()
    }
    entries = pod["spec"].get("resourceClaims") or ()
    names = [entry.get("resourceClaimName") or made.get(entry["name"], "") for entry in entries]
    namespace = pod["metadata"]["namespace"]
    return tuple(ObjectKey(namespace, name) for name in names) if all(names) else None


async def _body(receive: _Receive) -> bytes:
    chunks = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def _serve(port: int, kubeconfig: str) -> None:
    async with connect(Origin(kubeconfig), random=random.random) as cluster:
        listing = await cluster.api.list(CLAIMS)
        app = IdleExtender(cluster.api, listing.items, lambda: datetime.now(UTC))
        config = uvicorn.Config(
            app,
            port=port,
            http=OnePacketProtocol,
            loop="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        await uvicorn.Server(config).serve()


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kubeconfig", required=True)
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.port, arguments.kubeconfig))


if __name__ == "__main__":
    main()
