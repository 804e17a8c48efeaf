"""Where etcd and Kubernetes' own components come from: KUBEBUILDER_ASSETS, or built from their Go modules.

So are Helm, kubectl, krew, and kustomize, as far as it renders.

KUBERNETES says which minor version is built. The builds of all versions are kept.

Run as a program, it builds what is missing and says so: ``python -m tests.kit.controlplane.binaries``.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kubernetes.

    Attributes:
        version: as the components tell it.
        modules: the file in program/ that names the modules. Its sums are beside it.
        has_taint_rules: whether there is a feature gate for DeviceTaintRules.
    """

    version: str
    modules: str
    has_taint_rules: bool = True

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of ``go build``: the modules, and the version that the components tell."""
        major, minor, _ = self.version.removeprefix("v").split(".")
        stamps = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        linked = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
        return (*_BUILD_FLAGS, f"{_MODULES}{self.modules}", "-ldflags", " ".join(("-s -w", *linked)))


RELEASES: Final[Mapping[str, Release]] = {
    "1.34": Release("v1.34.4", "v1.34.mod", has_taint_rules=False),
    "1.35": Release("v1.35.4", "v1.35.mod", has_taint_rules=False),
    "1.36": Release("v1.36.3", "v1.36.mod"),
    "1.37": Release("v1.37.1", "go.mod"),
}
"""By minor version of Kubernetes."""

USUAL: Final = "1.36"
"""What is built if KUBERNETES does not say."""

COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILD_SECONDS: Final = 3600

_PROGRAM: Final = Path(__file__).parent / "program"
_EXPANDER_CLIENT: Final = Path(__file__).parents[1] / "expander_client"
_RENDERER: Final = Path(__file__).parent / "render"
_KUBECTL: Final = Path(__file__).parent / "kubectl"
_KREW: Final = Path(__file__).parent / "krew"
CACHE: Final = Path(__file__).parent / ".bin"
_BUILD_FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false")
_MODULES: Final = "-modfile="


class BinariesError(Exception):
    """There is no control plane to run, and why."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The start of each component's command line, by the component's name."""

    commands: Mapping[str, tuple[str, ...]]

    def command(self, component: str) -> tuple[str, ...]:
        """The program, and what comes before the component's own flags."""
        return self.commands[component]


def find_binaries(environ: Mapping[str, str], cache: Path = CACHE) -> Binaries:
    """The binaries of KUBEBUILDER_ASSETS if that is set; else the built ones, built now if they have not been yet.

    Args:
        environ: KUBERNETES is the minor version of what is built. PATH says where go is; go reads more of it.
        cache: folder for what is built.

    Raises:
        BinariesError: the folder lacks one, there is no such version, there is no Go, or the build failed.
    """
    assets, wanted = environ.get("KUBEBUILDER_ASSETS"), environ.get("KUBERNETES")
    if assets:
        if wanted:
            raise BinariesError("KUBEBUILDER_ASSETS and KUBERNETES are both set; unset one of them")
        return _from_assets(Path(assets))
    release = _release(wanted or USUAL)
    name = f"controlplane-{(wanted or USUAL).replace('.', '-')}"
    target = built(name, _PROGRAM, release.flags, environ, cache)
    return Binaries({component: (str(target), component) for component in COMPONENTS})


def find_scheduler(environ: Mapping[str, str], cache: Path = CACHE) -> tuple[Path, str]:
    """kube-scheduler as a program of its own, built now if it has not been yet, and its version.

    Raises:
        BinariesError: there is no such version, there is no Go, or the build failed.
    """
    minor = environ.get("KUBERNETES") or USUAL
    release = _release(minor)
    name = f"kube-scheduler-{minor.replace('.', '-')}"
    found = built(name, _PROGRAM, release.flags, environ, cache, "k8s.io/kubernetes/cmd/kube-scheduler")
    return found, release.version


def find_helm(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """Helm, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("helm", _RENDERER, _BUILD_FLAGS, environ, cache, package="helm.sh/helm/v3/cmd/helm")


def find_kubectl(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """kubectl, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("kubectl", _KUBECTL, (*_BUILD_FLAGS, "-ldflags", "-s -w"), environ, cache)


def find_krew(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The manager of plugins for kubectl, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("krew", _KREW, _BUILD_FLAGS, environ, cache, package="sigs.k8s.io/krew/cmd/krew")


def find_actionlint(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The linter of the forge's workflows, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    package = "github.com/rhysd/actionlint/cmd/actionlint"
    return built("actionlint", _RENDERER, _BUILD_FLAGS, environ, cache, package)


def find_renderer(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The program that renders kustomizations, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("render", _RENDERER, _BUILD_FLAGS, environ, cache)


def find_expander_client(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The program that calls a gRPC expander as Cluster Autoscaler does, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("expander-client", _EXPANDER_CLIENT, _BUILD_FLAGS, environ, cache)


def built(
    name: str, source: Path, flags: Sequence[str], environ: Mapping[str, str], cache: Path, package: str = "."
) -> Path:
    """A Go program, built if its sources or its flags have changed.

    Args:
        name: of the program.
        source: folder of its module.
        flags: of ``go build``.
        environ: PATH says where go is; go reads more of it.
        cache: folder for what is built.
        package: to build; one of another module has its version in go.mod.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    target = cache / f"{name}-{_fingerprint(source, flags)}"
    if not target.exists():
        _build(target, source, (*flags, "-o"), package, environ)
    return target


def _release(minor: str) -> Release:
    release = RELEASES.get(minor)
    if release is None:
        raise BinariesError(f'KUBERNETES="{minor}" is none of the versions {", ".join(RELEASES)}')
    return release


def _from_assets(folder: Path) -> Binaries:
    missing = [component for component in COMPONENTS if not os.access(folder / component, os.X_OK)]
    if missing:
        raise BinariesError(
            f"KUBEBUILDER_ASSETS={folder} has no {', '.join(missing)}; "
            "unset it to have all of them built from their Go modules"
        )
    return Binaries({component: (str(folder / component),) for component in COMPONENTS})


def _fingerprint(source: Path, flags: Sequence[str]) -> str:
    """Of everything that decides what is built."""
    digest = hashlib.sha256(" ".join(flag for flag in flags if flag != "-ldflags").encode())
    modules = next((flag.removeprefix(_MODULES) for flag in flags if flag.startswith(_MODULES)), "go.mod")
    for name in (modules, modules.replace(".mod", ".sum"), "main.go"):
        if (source / name).exists():
            digest.update((source / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(target: Path, source: Path, flags: Sequence[str], package: str, environ: Mapping[str, str]) -> None:
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise BinariesError(
            "the cluster tests need a control plane: put go (1.26 or later) on PATH, or set KUBEBUILDER_ASSETS to a "
            f"folder with {', '.join(COMPONENTS)}"
        )
    target.parent.mkdir(exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = (go, "build", *flags, str(unfinished), package)
    try:
        subprocess.run(command, cwd=source, env=dict(environ), check=True, timeout=BUILD_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        unfinished.unlink(missing_ok=True)
        raise BinariesError(f"building {source}: {error}") from error
    for outdated in target.parent.glob(f"{target.name.rpartition('-')[0]}-*"):
        if not outdated.suffix:
            outdated.unlink()
    unfinished.rename(target)


def main() -> None:
    """Have the binaries, and say where they are."""
    started = time.monotonic()
    sys.stderr.write("control plane: looking for the binaries; a first build takes minutes\n")
    try:
        found = find_binaries(os.environ)
    except BinariesError as error:
        sys.exit(f"error: {error}")
    sys.stderr.write(f"control plane: {found.command('etcd')[0]} ({time.monotonic() - started:.1f} s)\n")
    try:
        programs = (find_helm(os.environ), find_renderer(os.environ), find_kubectl(os.environ))
        sys.stderr.write(f"helm, kustomize, kubectl: {', '.join(map(str, programs))}\n")
    except BinariesError as error:
        sys.stderr.write(f"helm, kustomize, kubectl: not here, so that tests of deploy/ are skipped: {error}\n")
    try:
        sys.stderr.write(f"client of the gRPC expander: {find_expander_client(os.environ)}\n")
    except BinariesError as error:
        sys.stderr.write(f"client of the gRPC expander: not here, so that its tests are skipped: {error}\n")


if __name__ == "__main__":
    main()
