"""`MemoryApi` on HTTP: an API server to read, watch and write, with the rules that clients run into.

``python -m tests.kit.servers.writable OBJECTS`` reads a file with one JSON object a line, and prints its port. With
``--tls CERTIFICATE KEY`` it listens with HTTPS.
"""

import argparse
import ssl
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson
import uvloop

from extender.kube.api import ApiError, Event, EventType, RawObject, key_of, revision_of
from extender.kube.resources import PODS, RESOURCES, Resource
from extender.lab.api import MemoryApi
from tests.kit.servers.raw import Call, RawApiServer, Reply, load_all


def _memory() -> MemoryApi:
    return MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class WritableApiServer(RawApiServer):
    """Writes go to an API in memory; reads are answered from what it tells of changes."""

    api: MemoryApi = field(default_factory=_memory)

    def apply(self, event: Event) -> None:
        """An object has changed."""
        key, text = key_of(event.object), orjson.dumps(event.object)
        if event.type is EventType.DELETED:
            self.unload(event.resource, (key.namespace, key.name))
        else:
            self.load(event.resource, (key.namespace, key.name), text)
        self.tell(event.resource, event.type.value, text, revision_of(event.object))

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """The objects at the start."""
        del resource
        load_all(self, objects)
        self.revision = at
        return True

    async def write(self, call: Call) -> Reply:
        """Do what a request asks for."""
        if call.resource is None:
            return await RawApiServer.write(self, call)
        try:
            return 200, orjson.dumps(await written(self.api, call, call.resource))
        except ApiError as error:
            status = {"kind": "Status", "code": error.status, "reason": error.reason, "message": error.message}
            return error.status, orjson.dumps(status)


async def written(api: MemoryApi, call: Call, resource: Resource) -> RawObject:
    """What a request that writes is answered, once it is done. Raises ApiError: it is refused."""
    key = call.key
    sent = orjson.loads(call.body) if call.body else {}
    match call.method, call.subresource:
        case "PUT", "status":
            return await api.update_status(resource, sent)
        case "PUT", _:
            return await api.update(resource, sent)
        case "PATCH", "status":
            return await api.patch_status(resource, key, sent)
        case "PATCH", _:
            return await api.patch(resource, key, sent)
        case "POST", "binding" if resource == PODS:
            metadata = sent["metadata"]
            version = metadata.get("resourceVersion", "")
            await api.bind_pod(key, sent["target"]["name"], uid=metadata.get("uid", ""), resource_version=version)
            return {"kind": "Status", "status": "Success"}
        case "POST", _:
            return await api.create(resource, sent)
        case "DELETE", _:
            given = sent.get("preconditions") or {}
            version = given.get("resourceVersion", "")
            await api.delete(resource, key, uid=given.get("uid", ""), resource_version=version)
            return {"kind": "Status", "status": "Success"}
    raise ApiError(405, "MethodNotAllowed", f"{call.method} {call.path}")


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("objects", type=Path)
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    asked = parser.parse_args()
    server = WritableApiServer()
    if asked.tls:
        server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.tls.load_cert_chain(*asked.tls)
    with asked.objects.open("rb") as lines:
        for each in map(orjson.loads, lines):
            server.api.load(RESOURCES[each["kind"]], each)
    server.api.follow(server)
    uvloop.run(server.serve())


if __name__ == "__main__":
    main()
