"""A controller on HTTP: one process, one question at a time."""

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from extender.driver.controller import Controller
from extender.driver.desk import Desk
from extender.driver.store import Store
from extender.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES, ProtocolError, question_of

_MOST_BYTES: Final = 16 * 1024 * 1024
_IDLE_SECONDS: Final = 120


def serve(controller: Controller, store: Path | str, *, host: str = "127.0.0.1", port: int = 9377) -> None:
    """Serve a controller until the process ends.

    Args:
        controller: decides.
        store: the file that remembers what is allocated. Only one process may use it.
        host: address to listen on. There is no TLS: put a proxy before it if it listens to the network.
        port: to listen on.
    """
    with new_server(Desk(controller, Store.open(Path(store))), host, port) as server:
        server.serve_forever()


def new_server(desk: Desk, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens and does not answer yet."""
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _IDLE_SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            kind = self.path.rpartition("/")[2]
            if not length.isdecimal() or int(length) > _MOST_BYTES:
                self.close_connection = True
                self._reply(HTTPStatus.BAD_REQUEST, "a question has a Content-Length of at most 16 MiB")
                return
            body = self.rfile.read(int(length))
            if kind not in {UNSUITABLE_NODES, ALLOCATE, DEALLOCATE}:
                self._reply(HTTPStatus.NOT_FOUND, f"there is no question {kind}")
                return
            try:
                question = question_of(kind, json.loads(body))
            except (ProtocolError, ValueError) as error:
                self._reply(HTTPStatus.BAD_REQUEST, str(error))
                return
            try:
                with turn:
                    answer = desk.answer(question)
            except Exception as error:  # noqa: BLE001 - a fault in the controller fails one question
                self.log_error("fault: %s: %s", type(error).__name__, error)
                self._reply(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
                return
            self._reply(HTTPStatus.OK, json.dumps(answer))

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Answers are not logged."""

        def _reply(self, status: HTTPStatus, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status is HTTPStatus.OK else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return ThreadingHTTPServer((host, port), Handler)
