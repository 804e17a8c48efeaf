"""A controller of the kit `extender.controllers`, answering in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from extender.controllers import Listening, Responder
from extender.controllers.server import new_server


@contextmanager
def answering(responder: Responder, listening: Listening = Listening()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """The URL of the controller, on a free port."""
    with new_server(responder, replace(listening, port=0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"{'https' if listening.certificates else 'http'}://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
