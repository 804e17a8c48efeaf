"""A sandbox for a node: a command runs as root in namespaces and cgroups of its own.

``python -m tests.kit.node.sandbox LOGS COMMAND...`` runs a command. It sees the machine's files and can change none of
them: what is written goes to memory, and is gone with the sandbox, as are all processes, mounts, network devices and
cgroups. Only LOGS is a folder of the machine; in the sandbox it is `LOGS_INSIDE`. A new folder in it has this run's log
files. They are kept if the command fails.

If this process is killed, the kernel ends the namespaces' first process and so everything in the sandbox. A second
process, which the sandbox does not know, removes the cgroups then.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kit.node import cgroups

STATE: Final = Path("/run/node")
"""In the sandbox: the folder of all that the node writes, in memory."""

LOGS_INSIDE: Final = STATE / "logs"

_NEEDED: Final = ("ip", "mount", "setpriv", "unshare")
_NAMESPACES: Final = ("--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup")
_OUTER: Final = ("setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "--fork", "--kill-child=KILL", "--")
_KEPT_RUNS: Final = 5


class SandboxError(Exception):
    """A sandbox cannot be made here, and why."""


def run(logs: Path, command: Sequence[str]) -> int:
    """Run a command in a sandbox, and wait until nothing of the sandbox is left.

    Args:
        logs: folder for the log files of this run and of those before.
        command: with arguments.

    Returns:
        The command's exit code.

    Raises:
        SandboxError: the machine, the user or the system lacks something.
    """
    hierarchies = _check_machine()
    folders = [each.folder / f"node-{os.getpid()}" for each in hierarchies]
    janitor, lifeline = _start_janitor(folders)
    try:
        cgroups.make(folders)
    except OSError as error:
        raise SandboxError(f"making a cgroup: {error}") from error
    folder = _new_folder(logs)
    # Ctrl-C reaches the command as well, which ends in its own way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(_start(folders, folder, command), 0)[1])
    os.close(lifeline)
    if os.waitstatus_to_exitcode(os.waitpid(janitor, 0)[1]):
        code = code or 1
    if code == 0:
        shutil.rmtree(folder)
    else:
        sys.stderr.write(f"logs of the node: {folder}\n")
    return code


def _check_machine() -> list[cgroups.Hierarchy]:
    if sys.platform != "linux":
        raise SandboxError(f"a node needs Linux, and this is {sys.platform}")
    if os.geteuid() != 0:
        raise SandboxError(f"namespaces and cgroups need root, and this is user {os.geteuid()}")
    missing = [program for program in _NEEDED if shutil.which(program) is None]
    if missing:
        raise SandboxError(f"PATH has no {', '.join(missing)}; the packages are util-linux and iproute2")
    try:
        return cgroups.own_hierarchies()
    except cgroups.CgroupsError as error:
        raise SandboxError(str(error)) from error


def _new_folder(logs: Path) -> Path:
    folder = logs.resolve() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    for old in sorted(folder.parent.iterdir())[:-_KEPT_RUNS]:
        shutil.rmtree(old)
    return folder


def _start_janitor(folders: list[Path]) -> tuple[int, int]:
    """Fork a process that removes the cgroups when this process has gone, in whichever way.

    Returns:
        Its id, and the file descriptor that tells it: closed, as the kernel does when this process ends.
    """
    told, lifeline = os.pipe()
    janitor = os.fork()
    if janitor:
        os.close(told)
        return janitor, lifeline
    os.close(lifeline)
    # What ends a terminal's processes must not end this one.
    os.setsid()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    os.read(told, 1)
    left = cgroups.remove(folders)
    if left:
        sys.stderr.write(f"sandbox: cgroups that are left: {', '.join(map(str, left))}\n")
        sys.stderr.flush()
    os._exit(1 if left else 0)


def _start(folders: list[Path], logs: Path, command: Sequence[str]) -> int:
    """The process id of the sandbox's parent. It dies with this process, and the sandbox with it."""
    child = os.fork()
    if not child:
        cgroups.join(folders)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        inside = (sys.executable, "-m", "tests.kit.node.inside", str(logs), *command)
        os.execvp(_OUTER[0], (*_OUTER, *inside))  # noqa: S606  # no shell is wanted
    return child


def main() -> None:
    """Run the command of the arguments."""
    if len(sys.argv) < 3:
        sys.exit("usage: python -m tests.kit.node.sandbox LOGS COMMAND...")
    try:
        sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
    except SandboxError as error:
        sys.exit(f"error: a node cannot run here: {error}")


if __name__ == "__main__":
    main()
