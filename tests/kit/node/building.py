"""The image of dra-extender, made by the steps of its Dockerfile, without a registry and without Docker.

``python -m tests.kit.node.building FOLDER`` leaves two files in FOLDER, which containerd imports: one with an image for
each of `TAGS`, one with kube-scheduler. If they are there already, of the same files, they are not made again.

The base image is the only thing that comes from elsewhere: instead of ``python:3.13-slim`` it is this machine's Python
3.13 in /usr/local. A stage whose RUN steps need a shell also sees the other files of the machine. Any other stage has
Python and the libraries that it loads, and nothing else: no shell, no package manager, no compiler.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from tests.kit.controlplane.binaries import BinariesError, find_scheduler
from tests.kit.node.dockerfile import Copy, Run, Stage, WorkDir, read
from tests.kit.node.image import FOLDERS, Image, layer_of, write_images
from tests.kit.places import ROOT

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
REPOSITORY: Final = "example.test/dra-extender"
TAGS: Final = ("1", "2")
"""Two images, so that one can be rolled out after the other: the second one has another label."""

SCHEDULER: Final = "example.test/kube-scheduler"
PYTHON: Final = "python3.13"
"""As in the base image that the Dockerfile names."""

_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_LEFT_OUT: Final = ("test", "idlelib", "turtledemo", "tkinter", "config-*", "*.a", "__pycache__", "site-packages")
_TESTS_OF_PYTHON: Final = ("_test*", "_ctypes_test*", "_tkinter*", "_curses*", "readline*", "_xx*", "xx*")
_PACKAGES: Final = Path.home() / ".cache/pip"
_DEVICES: Final = ("null", "random", "urandom", "zero")
_UNSHARED: Final = ("unshare", "--mount", "--propagation", "private", "--")


class BuildError(Exception):
    """An image cannot be made here, and why."""


@dataclass(slots=True)
class _Built:
    """A stage after its steps.

    Attributes:
        root: its files, as RUN and COPY --from see them.
        written: those that the stage itself has written.
    """

    root: Path
    written: Path
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=dict)


def image_file(folder: Path, repository: str) -> Path:
    """Where `main` leaves the images of a repository."""
    return folder / f"{repository.rpartition('/')[2]}.tar"


def build(work: Path) -> Image:
    """Carry out the Dockerfile; the image has no name yet. Mounts of this process are made, so it has its own.

    Args:
        work: an empty folder, in memory.

    Raises:
        BuildError: there is no such Python, or a step failed.
    """
    prefix = _prefix()
    base = work / "base"
    _copy_python(prefix, base / "usr/local")
    for name in FOLDERS:
        (base / name).mkdir(exist_ok=True)
    (base / "tmp").chmod(0o1777)
    _add_libraries(base, [base])
    stages = read(DOCKERFILE.read_text(), {"PATH": _PATH})
    done: dict[str, _Built] = {}
    for stage in stages:
        if "python:3.13" not in stage.base:
            raise BuildError(f"deploy/Dockerfile begins with {stage.base}, and this machine's Python is 3.13")
        done[stage.name] = _carry_out(stage, done, base, work / stage.name)
    last = done[stages[-1].name]
    _add_libraries(base, [base, last.written])
    environment = {"PATH": _PATH, **stages[-1].environment}
    config = {
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Entrypoint": list(stages[-1].entrypoint),
        "User": stages[-1].user,
        "WorkingDir": last.workdir,
    }
    return Image("", (layer_of(base), layer_of(last.written)), config)


def _prefix() -> Path:
    """Where the Python of the image is installed on this machine."""
    program = shutil.which(PYTHON)
    if program is None:
        raise BuildError(f"PATH has no {PYTHON}, which is in the image")
    # What pyenv has on PATH is no Python, but chooses one by the current folder.
    versions = sorted((Path(program).parents[1] / "versions").glob(f"{PYTHON.removeprefix('python')}.*/bin/{PYTHON}"))
    for found in (*reversed(versions), Path(program)):
        command = (str(found), "-c", "import sys; print(sys.base_prefix)")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Path(done.stdout.strip())
    raise BuildError(f"{program} does not start")


def _copy_python(prefix: Path, target: Path) -> None:
    """An installation of Python without its own tests, graphics and packages, and, as there, not compiled."""
    left_out = shutil.ignore_patterns(*_LEFT_OUT)
    for name in ("bin", "lib"):
        shutil.copytree(prefix / name, target / name, symlinks=True, ignore=left_out)
    for found in (target / "lib").glob("python3.*/lib-dynload/*"):
        if any(found.match(pattern) for pattern in _TESTS_OF_PYTHON):
            found.unlink()


def _carry_out(stage: Stage, done: dict[str, _Built], base: Path, folder: Path) -> _Built:
    needs_shell = any(isinstance(each, Run) and each.script for each in stage.steps)
    built = _root(folder, base, machine=needs_shell)
    for step in stage.steps:
        match step:
            case WorkDir(path):
                built.workdir = path
                (built.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case Copy():
                _copy(step, built, done)
            case Run():
                _run(step, built, stage)
    return built


def _root(folder: Path, base: Path, *, machine: bool) -> _Built:
    """The base image, with the files of the machine below it or without them; changes are kept apart."""
    written, spare, root = (folder / name for name in ("written", "spare", "root"))
    for each in (written, spare, root):
        each.mkdir(parents=True)
    lower = f"{base}:/" if machine else str(base)
    _mount("-t", "overlay", "-o", f"lowerdir={lower},upperdir={written},workdir={spare}", "overlay", str(root))
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("-t", "tmpfs", "tmpfs", str(root / "dev"))
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    if machine:
        # What has been fetched once is not fetched again.
        inside = root / _PACKAGES.relative_to("/")
        for each in (_PACKAGES, inside):
            each.mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(_PACKAGES), str(inside))
    return _Built(root, written)


def _copy(step: Copy, built: _Built, done: dict[str, _Built]) -> None:
    source = done[step.stage].root if step.stage else ROOT
    target = built.root / (step.target if step.target.startswith("/") else f"{built.workdir}/{step.target}").lstrip("/")
    for each in step.sources:
        found = source / each.lstrip("/")
        if found.is_dir():
            shutil.copytree(
                found, target, symlinks=True, ignore=None if step.stage else shutil.ignore_patterns("__pycache__")
            )
        else:
            into = target / found.name if step.target.endswith("/") else target
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, into)


def _run(step: Run, built: _Built, stage: Stage) -> None:
    # Where packages come from is up to the machine, as it is up to the configuration of a build elsewhere.
    of_machine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**of_machine, "PATH": _PATH, **stage.environment}
    script = step.script.replace("--no-cache-dir ", "")
    inside = step.command or ("/bin/sh", "-c", f"cd {built.workdir} && {script}")
    command = ("chroot", str(built.root), *inside)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"RUN {' '.join(inside)}\n{done.stdout}{done.stderr}")


def _add_libraries(base: Path, folders: list[Path]) -> None:
    """The libraries that programs in these folders load, and the loader's list of them."""
    programs = [path for folder in folders for path in folder.rglob("*") if _is_program(path)]
    for library in sorted({each for program in programs for each in _libraries(program)}):
        inside = base / "usr/local/lib" / library.name
        if any(folder / library.relative_to("/") in programs for folder in folders) or inside.exists():
            continue
        target = base / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library.resolve(), target)
    (base / "etc/ld.so.conf").write_text("/usr/local/lib\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n")
    subprocess.run(("ldconfig", "-r", str(base)), check=True, env={"PATH": _PATH})  # noqa: S607  # from PATH


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(program: Path) -> Iterator[Path]:
    done = subprocess.run(("ldd", str(program)), capture_output=True, text=True, check=False)  # noqa: S607  # from PATH
    for line in done.stdout.splitlines():
        for word in line.split():
            if word.startswith("/"):
                yield Path(word)


def _mount(*arguments: str) -> None:
    subprocess.run(("mount", *arguments), check=True)  # noqa: S607  # from PATH


def _fingerprint() -> str:
    """Of all files that decide what is in the images."""
    digest = hashlib.sha256(str(_prefix()).encode())
    sources = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE", DOCKERFILE, Path(__file__)]
    sources += sorted((ROOT / "deploy").glob("requirements*.txt"))
    for name in ("allocator", "extender"):
        sources += sorted(path for path in (ROOT / name).rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in sources:
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(work: Path, folder: Path) -> None:
    """Make the images; this process has mounts of its own, which go with it, and the files on them."""
    _mount("-t", "tmpfs", "tmpfs", str(work))
    made = build(work)
    labels = {tag: {"Labels": {"org.opencontainers.image.version": tag}} for tag in TAGS}
    images = [Image(f"{REPOSITORY}:{tag}", made.layers, made.config | label) for tag, label in labels.items()]
    write_images(image_file(folder, REPOSITORY), *images)


def _scheduler_image(program: Path, version: str) -> Image:
    """kube-scheduler with the libraries that it loads."""
    with TemporaryDirectory() as folder:
        base = Path(folder)
        for name in (*FOLDERS, "usr/local/bin"):
            (base / name).mkdir(parents=True)
        shutil.copy2(program, base / "usr/local/bin/kube-scheduler")
        _add_libraries(base, [base])
        config = {"Env": [f"PATH={_PATH}"], "Entrypoint": ["kube-scheduler"]}
        return Image(f"{SCHEDULER}:{version}", (layer_of(base),), config)


def main() -> None:
    """Leave the images in the folder of the arguments."""
    *inside, last = sys.argv[1:]
    folder = Path(last).resolve()
    try:
        if inside:
            _make(Path(inside[0]), folder)
            return
        made, wanted = folder / "made-of", _fingerprint()
        if made.exists() and made.read_text() == wanted:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        program, version = find_scheduler(os.environ)
        write_images(image_file(folder, SCHEDULER), _scheduler_image(program, version))
        work = Path(mkdtemp())
        command = (*_UNSHARED, sys.executable, "-m", "tests.kit.node.building", str(work), str(folder))
        failed = subprocess.run(command, check=False).returncode
        # Empty: what was mounted there was of the other process alone.
        work.rmdir()
        if failed:
            sys.exit(1)
        made.write_text(wanted)
    except (BuildError, BinariesError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
