"""Kubernetes' own test programs, built with one file more and one line changed.

The Go tool lays both over the module's source while it builds (``-overlay``); the module itself stays as it is. It
refuses to lay files over its cache of modules, so the module is replaced by a link to its folder there.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.controlplane.binaries import BUILD_SECONDS, RELEASES, Binaries, BinariesError, find_binaries

NEWEST: Final = "1.37"
"""What is built if KUBERNETES does not say."""

CHANGED: Final = "test/integration/util/util.go"
"""Where the tests of Kubernetes start a scheduler."""

_PROGRAM: Final = Path(__file__).parent / "program"
_ADDED: Final = Path(__file__).parent / "overlay" / "dra_extender.go"
_CACHE: Final = Path(__file__).parent / ".bin"
_MODULE: Final = "k8s.io/kubernetes"
_LINE: Final = "\tclientSet := tCtx.Client()\n"
_BEFORE: Final = "\tinformerFactory := scheduler.NewInformerFactory("
_WITH_CALL: Final = "\tcfg, started := withDRAExtender(tCtx, cfg); defer started(); clientSet := tCtx.Client()\n"


@dataclass(frozen=True, slots=True)
class SuiteBinaries:
    """The test programs of one version of Kubernetes.

    Attributes:
        version: as in v1.37.1.
        modules: Go's cache of modules.
        source: folder of Kubernetes' module there.
        cache: folder of what is built.
    """

    version: str
    modules: Path
    source: Path
    cache: Path

    def program(self, package: str) -> Path:
        """The test program of a package, such as ``test/integration/dra/all``."""
        return self.cache / f"{package.removeprefix('test/integration/').replace('/', '-')}.test"


def find_suites(environ: Mapping[str, str], packages: tuple[str, ...], cache: Path = _CACHE) -> SuiteBinaries:
    """The test programs of some packages of Kubernetes' module, built now if they have not been yet.

    Args:
        environ: KUBERNETES is the minor version. PATH says where go is; go reads more of it.
        packages: paths within the module.
        cache: folder for what is built.

    Raises:
        BinariesError: there is no such version, there is no Go, or the build failed.
    """
    wanted = environ.get("KUBERNETES") or NEWEST
    known = {minor: release for minor, release in RELEASES.items() if (_PROGRAM / release.modules).exists()}
    release = known.get(wanted)
    if release is None:
        raise BinariesError(f'KUBERNETES="{wanted}" is none of the versions {", ".join(known)}')
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise BinariesError("Kubernetes' own tests are built from its Go module: put go (1.26 or later) on PATH")
    modfile = _PROGRAM / release.modules
    _run((go, "mod", "download", f"-modfile={modfile}", _MODULE), environ)
    modules = Path(_run((go, "env", "GOMODCACHE"), environ).strip())
    source = modules / f"{_MODULE}@{release.version}"
    folder = cache / f"{release.version}-{_fingerprint(modfile)}"
    found = SuiteBinaries(release.version, modules, source, folder)
    for missing in (each for each in packages if not found.program(each).exists()):
        _build(go, found, modfile, missing, environ)
    return found


def find_etcd(environ: Mapping[str, str]) -> Binaries:
    """The control plane whose etcd the tests use: that of the newest version serves all.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return find_binaries({**environ, "KUBEBUILDER_ASSETS": "", "KUBERNETES": NEWEST})


def with_call(source: str) -> str:
    """The source of `CHANGED` with the one line changed.

    Raises:
        BinariesError: the source has no such line, or several.
    """
    if source.count(_LINE + _BEFORE) != 1:
        raise BinariesError(f"{CHANGED} does not start a scheduler as the versions do that are known here")
    return source.replace(_LINE + _BEFORE, _WITH_CALL + _BEFORE)


def with_replacement(modules: str, folder: Path) -> str:
    """The text of a go.mod in which Kubernetes' module is a folder."""
    return f"{modules}\nreplace {_MODULE} => {folder}\n"


def _build(go: str, found: SuiteBinaries, modfile: Path, package: str, environ: Mapping[str, str]) -> None:
    found.cache.mkdir(parents=True, exist_ok=True)
    link = found.cache / "kubernetes"
    link.unlink(missing_ok=True)
    link.symlink_to(found.source)
    own = found.cache / "go.mod"  # of the module in which go runs
    own.write_text(with_replacement(modfile.read_text(), link))
    own.with_suffix(".sum").write_bytes(modfile.with_suffix(".sum").read_bytes())
    changed = found.cache / "util.go"
    changed.write_text(with_call((found.source / CHANGED).read_text()))
    overlay = found.cache / "overlay.json"
    place = link / CHANGED
    replaced = {str(place): str(changed), str(place.with_name(_ADDED.name)): str(_ADDED)}
    overlay.write_text(json.dumps({"Replace": replaced}))
    target = found.program(package)
    unfinished = target.with_suffix(f".{os.getpid()}")
    flags = ("-mod=mod", "-vet=off", "-trimpath", "-buildvcs=false", f"-overlay={overlay}", "-ldflags=-s -w")
    _run((go, "test", "-c", *flags, "-o", str(unfinished), f"{_MODULE}/{package}"), environ, found.cache)
    unfinished.rename(target)


def _run(command: tuple[str, ...], environ: Mapping[str, str], folder: Path = _PROGRAM) -> str:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            timeout=BUILD_SECONDS,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BinariesError(f"{' '.join(command)}: {error}") from error


def _fingerprint(modfile: Path) -> str:
    """Of everything that decides what is built."""
    digest = hashlib.sha256(_WITH_CALL.encode())
    for each in (modfile, modfile.with_suffix(".sum"), _ADDED):
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]
