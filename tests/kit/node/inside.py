"""The first process of a sandbox's namespaces: it sets up mounts and network, runs a command, and ends with it.

`tests.kit.node.sandbox` starts it: ``python -m tests.kit.node.inside LOGS COMMAND...``. When it ends, the kernel kills
all other processes of the namespace.
"""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kit.node import cgroups
from tests.kit.node.sandbox import LOGS_INSIDE, STATE

NODE_IP: Final = "10.99.0.1"
_GATEWAY: Final = "10.99.0.254"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the sandbox has its own
_KUBELET: Final = Path("/var/lib/kubelet")
# Numbers of Linux, on all of its processors.
_MOUNT_SETATTR: Final = 442
_MOUNT_ATTR_RDONLY: Final = 1
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000

_SETTINGS: Final = Path("/proc/sys")
_WANTED_SETTINGS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What the kubelet sets for the whole machine, or it does not start. It reads that it has been set already."""

_OVERLAID: Final = (Path("/var/lib"), Path("/var/log"))
"""Where the kubelet has folders whose paths cannot be chosen."""


def set_up_mounts(logs: Path) -> None:
    """Make everything of the machine read-only, then mount what a node writes to, in memory.

    Raises:
        OSError: the machine's mounts cannot be made read-only.
        subprocess.CalledProcessError: a mount is refused.
    """
    hierarchies = cgroups.own_hierarchies()
    _make_read_only(Path("/"))
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(_SHARED_MEMORY))
    # The machine's folder may be below /run, where it cannot be seen any more after the next mount.
    before = _SHARED_MEMORY / "logs"
    before.mkdir()
    _bind(logs, before, writable=True)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    LOGS_INSIDE.mkdir(parents=True)
    _mount("--move", str(before), str(LOGS_INSIDE))
    _mount_kernel(hierarchies)
    for folder in _OVERLAID:
        upper, work = (STATE / "overlay" / part / folder.name for part in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        _mount("-t", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", "overlay", str(folder))
    (STATE / "kubelet").mkdir()
    _KUBELET.mkdir(exist_ok=True)
    _bind(STATE / "kubelet", _KUBELET, writable=True)
    # Containers get mounts that the kubelet makes later. Nothing outside of the sandbox hears of them.
    _mount("--make-rshared", "/")


def set_up_network() -> None:
    """A node's address and default route. Nothing answers beyond the node."""
    # Not each kernel has dummy devices. One end of a pair will do.
    for command in (
        "link set lo up",
        "link add node0 type veth peer name node0-peer",
        f"addr add {NODE_IP}/24 dev node0",
        "link set node0-peer up",
        "link set node0 up",
        f"route add default via {_GATEWAY} dev node0",
    ):
        subprocess.run(("ip", *command.split()), check=True)  # noqa: S607  # from PATH


def run(command: Sequence[str]) -> int:
    """Run a command to its end, and bury processes that have lost their parent meanwhile; its exit code."""
    folder = STATE / "tmp"
    folder.mkdir()
    environ = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    started = subprocess.Popen(command, env=environ)
    # Ctrl-C is for the command, and this process ends after it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == started.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _mount_kernel(hierarchies: list[cgroups.Hierarchy]) -> None:
    """What the kernel shows of the namespaces, instead of what it shows of the machine."""
    _mount("-t", "proc", "proc", "/proc")
    # Those of the network are the namespace's own.
    _bind(_SETTINGS, _SETTINGS, writable=False)
    _bind(_SETTINGS / "net", _SETTINGS / "net", writable=True)
    for name, value in _WANTED_SETTINGS.items():
        shown = STATE / "settings" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        _bind(shown, _SETTINGS / name, writable=False)
    _mount("-t", "sysfs", "-o", "ro", "sysfs", "/sys")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(cgroups.ROOT))
    for each in hierarchies:
        each.mountpoint.mkdir()
        _mount("-t", "cgroup", "-o", each.mount_options, "cgroup", str(each.mountpoint))


def _make_read_only(path: Path) -> None:
    """Make a mount and all below it read-only, also those that others hide: mount(8) cannot do that everywhere.

    Raises:
        OSError: the kernel refuses it; it can do this since Linux 5.12.
    """
    # struct mount_attr of mount_setattr(2): set, clear, propagation, user namespace.
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, bytes(path), _AT_RECURSIVE, attributes, len(attributes)):
        raise OSError(ctypes.get_errno(), "mount_setattr", str(path))


def _bind(source: Path, target: Path, *, writable: bool) -> None:
    _mount("--bind", str(source), str(target))
    _mount("-o", f"remount,bind,{'rw' if writable else 'ro'}", str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(("mount", *arguments), check=True)  # noqa: S607  # from PATH


def main() -> None:
    """Set up, and run the command of the arguments."""
    set_up_mounts(Path(sys.argv[1]))
    socket.sethostname("node-1")
    set_up_network()
    sys.exit(run(sys.argv[2:]))


if __name__ == "__main__":
    main()
