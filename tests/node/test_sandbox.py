"""What runs in a sandbox leaves the machine as it is, however it ends."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.node import cgroups
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.waiting import wait_until

END_SECONDS = 30.0
_SANDBOX = (sys.executable, "-m", "tests.kit.node.sandbox")


@pytest.fixture(autouse=True)
def in_a_sandbox() -> None:
    if not LOGS_INSIDE.is_dir():
        pytest.fail("these tests run in a sandbox only: make test-node", pytrace=False)


def own_cgroups(name: str) -> list[Path]:
    return [each.folder / name for each in cgroups.own_hierarchies() if (each.folder / name).exists()]


@pytest.mark.parametrize("path", ["/etc", "/usr", str(Path(__file__).parent), "/dev"])
def test_the_machines_files_cannot_be_changed(path: str) -> None:
    with pytest.raises(OSError, match="Read-only") as refused:
        (Path(path) / "written-by-a-test").write_text("")
    assert refused.value.errno == errno.EROFS


@pytest.mark.parametrize("setting", ["vm/swappiness", "vm/overcommit_memory", "kernel/panic_on_oops"])
def test_the_machines_settings_cannot_be_changed(setting: str) -> None:
    path = Path("/proc/sys") / setting
    before = path.read_text()
    with pytest.raises(OSError, match="Read-only"):
        path.write_text(before)


def test_the_exit_code_is_that_of_the_command(tmp_path: Path) -> None:
    ended = subprocess.run((*_SANDBOX, str(tmp_path), "sh", "-c", "exit 7"), check=False, capture_output=True)
    assert ended.returncode == 7
    assert b"logs of the node: " in ended.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_a_machine_without_the_programs_is_refused_by_their_names(tmp_path: Path) -> None:
    ended = subprocess.run((*_SANDBOX, str(tmp_path), "true"), check=False, capture_output=True, env={"PATH": ""})
    assert ended.returncode == 1
    assert b"error: a node cannot run here: PATH has no ip, mount, setpriv, unshare" in ended.stderr


def test_nothing_stays_after_a_command_that_leaves_processes(tmp_path: Path) -> None:
    started = subprocess.Popen((*_SANDBOX, str(tmp_path), "sh", "-c", "sleep 1000 & exit 0"))
    assert started.wait(END_SECONDS) == 0
    assert own_cgroups(f"node-{started.pid}") == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_after_kill_9(tmp_path: Path) -> None:
    script = "mkdir /sys/fs/cgroup/memory/inner; touch /run/node/logs/up; sleep 1000"
    started = subprocess.Popen((*_SANDBOX, str(tmp_path), "sh", "-c", script))
    wait_until(lambda: bool(list(tmp_path.glob("*/up"))), "the command runs", within=END_SECONDS)
    inside = [
        int(pid)
        for folder in own_cgroups(f"node-{started.pid}")
        for pid in (folder / "cgroup.procs").read_text().split()
    ]
    assert inside
    started.kill()
    started.wait()
    wait_until(lambda: not own_cgroups(f"node-{started.pid}"), "the cgroups are gone", within=END_SECONDS)
    # A process that has ended has its number until somebody has waited for it.
    wait_until(lambda: not any(map(_lives, inside)), "the processes are gone", within=END_SECONDS)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
