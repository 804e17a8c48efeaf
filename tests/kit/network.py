"""Another network namespace, as a pod has one: connected to this one by a pair of virtual devices."""

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

_T = TypeVar("_T")

_CLONE_NEWNET: Final = 0x40000000


class NetworkError(Exception):
    """There can be no other network namespace here."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network namespace.

    Attributes:
        host: our address, as seen from there.
    """

    name: str
    host: str

    def command(self, *arguments: str) -> tuple[str, ...]:
        """A command line that runs there."""
        return ("ip", "netns", "exec", self.name, *arguments)

    def call(self, work: Callable[[], _T]) -> _T:
        """Do something in a thread whose sockets are there."""
        with ThreadPoolExecutor(1, initializer=self._enter) as executor:
            return executor.submit(work).result()

    def _enter(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.name}", "rb") as found:  # noqa: PTH123  # for its descriptor
            if library.setns(found.fileno(), _CLONE_NEWNET):
                raise NetworkError(f"setns: {os.strerror(ctypes.get_errno())}")


@contextmanager
def other_network() -> Iterator[Network]:
    """A network namespace with one device, whose other end is here.

    Raises:
        NetworkError: it needs root and the program ``ip``.
    """
    if shutil.which("ip") is None:
        raise NetworkError("there is no program ip: install the package iproute2")
    name = f"dra-{secrets.token_hex(4)}"
    number = secrets.randbelow(2**14)
    prefix = f"198.18.{number // 64}.{number % 64 * 4}".rpartition(".")  # a network of four addresses (RFC 2544)
    host, guest = (f"{prefix[0]}.{int(prefix[2]) + last}" for last in (1, 2))
    ours, theirs = f"{name}-a", f"{name}-b"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("address", "add", f"{host}/30", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "address", "add", f"{guest}/30", "dev", theirs)
        _ip("-n", name, "link", "set", theirs, "up")
        yield Network(name, host)
    finally:
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)  # noqa: S607  # from PATH
    if done.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()} (it needs root)")
