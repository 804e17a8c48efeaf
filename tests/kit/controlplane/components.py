"""etcd, an API server and a controller manager on loopback ports of their own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.kit.controlplane.access import ADMIN, CONTROLLERS, Access, new_tokens, write_signing_key, write_token_file
from tests.kit.controlplane.binaries import RELEASES, Binaries
from tests.kit.process import Process, answers, free_port

START_SECONDS: Final = 120.0
"""For one component on a busy machine; they need about a second each."""

_SIGNING_KEY: Final = "service-accounts.key"
_CONTROLLERS: Final = (
    "resourceclaim-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "device-taint-eviction-controller",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What differs between the API servers that the suite starts.

    Attributes:
        feature_gates: for the API server and the controller manager.
        runtime_config: API versions on or off, e.g. ``{"resource.k8s.io/v1": False}``.
        server_flags: further flags of the API server.
        controllers: whether a controller manager runs; it needs resource.k8s.io/v1.
        more_controllers: that run in it besides those that all tests need.
        controller_flags: further flags of the controller manager.
        address: where the API server listens, and how all others reach it.
        port: of the API server; 0: one that is free.
        service_accounts: whether each namespace has an account, and pods get tokens and the API server's authority.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    server_flags: tuple[str, ...] = ()
    controllers: bool = True
    more_controllers: tuple[str, ...] = ()
    controller_flags: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    port: int = 0
    service_accounts: bool = False

    @property
    def gates_flag(self) -> tuple[str, ...]:
        """``--feature-gates``, if there are any."""
        return (f"--feature-gates={_switches(self.feature_gates)}",) if self.feature_gates else ()

    @property
    def runtime_flag(self) -> tuple[str, ...]:
        """``--runtime-config``, if there is any."""
        return (f"--runtime-config={_switches(self.runtime_config)}",) if self.runtime_config else ()


ALL_VERSIONS: Final = Options(
    feature_gates={"DRADeviceTaintRules": True},
    runtime_config={"resource.k8s.io/v1beta1": True, "resource.k8s.io/v1beta2": True},
    controller_flags=("--kube-api-qps=200", "--kube-api-burst=400"),
)
"""Every API version that we read, and taint rules. By default, the controller manager makes only 10 claims a second."""


def usual_options(environ: Mapping[str, str]) -> Options:
    """`ALL_VERSIONS`, as far as the version of Kubernetes that KUBERNETES names has it."""
    release = RELEASES.get(environ.get("KUBERNETES", ""))
    return ALL_VERSIONS if release is None or release.has_taint_rules else replace(ALL_VERSIONS, feature_gates={})


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        folder: for files of whoever works with it; gone with the control plane.
        logs: folder of the log files.
        seconds: how long each component took until it was ready, by its name.
        components: those that run, by their names.
    """

    binaries: Binaries
    url: str
    certificate: Path
    tokens: Mapping[str, str]
    folder: Path
    logs: Path
    apiserver: Process
    seconds: dict[str, float]
    components: dict[str, Process] = field(default_factory=dict)

    def access(self, user: str = ADMIN) -> Access:
        """A way in for one of the users in `tests.kit.controlplane.access`."""
        return Access(self.url, self.tokens[user], self.certificate)

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig file for a user."""
        return self.access(user).write_kubeconfig(self.folder / f"{user.replace(':', '-')}.kubeconfig")


@contextmanager
def control_plane(binaries: Binaries, folder: Path, logs: Path, options: Options) -> Iterator[ControlPlane]:
    """Start etcd, the API server and the controller manager; stop them in reverse order."""
    etcd, etcd_url = _etcd(binaries, folder, logs)
    tokens = new_tokens()
    certificate = folder / "apiserver.crt"
    port = options.port or free_port()
    url = f"https://{options.address}:{port}"
    apiserver = Process(
        "kube-apiserver",
        (
            *binaries.command("kube-apiserver"),
            *_apiserver_flags(folder, etcd_url, port, tokens, options),
            *options.gates_flag,
            *options.runtime_flag,
            *options.server_flags,
        ),
        answers(f"{url}/readyz", certificate),
        logs / "kube-apiserver.log",
    )
    seconds: dict[str, float] = {}
    plane = ControlPlane(binaries, url, certificate, tokens, folder, logs, apiserver, seconds)
    processes = [etcd, apiserver, *([_controllers(plane, options)] if options.controllers else ())]
    try:
        for process in processes:
            seconds[process.name] = process.start(within=START_SECONDS)
            plane.components[process.name] = process
        yield plane
    finally:
        for process in reversed(processes):
            process.stop()


def _etcd(binaries: Binaries, folder: Path, logs: Path) -> tuple[Process, str]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    flags = (
        f"--data-dir={folder / 'etcd'}",
        # Nothing here has to survive the machine.
        "--unsafe-no-fsync",
        # Milliseconds; it elects itself after this time instead of a second.
        "--election-timeout=200",
        "--heartbeat-interval=20",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    )
    command = (*binaries.command("etcd"), *flags)
    return Process("etcd", command, answers(f"{client}/readyz"), logs / "etcd.log"), client


def _apiserver_flags(
    folder: Path, etcd_url: str, port: int, tokens: dict[str, str], options: Options
) -> tuple[str, ...]:
    signing_key = write_signing_key(folder / _SIGNING_KEY)
    return (
        f"--etcd-servers={etcd_url}",
        f"--bind-address={options.address}",
        f"--advertise-address={options.address}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--token-auth-file={write_token_file(folder / 'tokens.csv', tokens)}",
        "--authorization-mode=RBAC",
        # A loopback address is refused as an endpoint.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={signing_key}",
        f"--service-account-signing-key-file={signing_key}",
        # Without its controller, nobody makes the default service account that this plugin asks for.
        *(() if options.service_accounts else ("--disable-admission-plugins=ServiceAccount",)),
    )


def _controllers(plane: ControlPlane, options: Options) -> Process:
    port = free_port()
    for_accounts = (
        f"--service-account-private-key-file={plane.folder / _SIGNING_KEY}",
        f"--root-ca-file={plane.certificate}",
    )
    flags = (
        f"--kubeconfig={plane.kubeconfig(CONTROLLERS)}",
        f"--controllers={','.join((*_CONTROLLERS, *options.more_controllers))}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={plane.folder}",
        *(for_accounts if options.service_accounts else ()),
        *options.gates_flag,
        *options.controller_flags,
    )
    return Process(
        "kube-controller-manager",
        (*plane.binaries.command("kube-controller-manager"), *flags),
        answers(f"https://127.0.0.1:{port}/healthz", plane.folder / "kube-controller-manager.crt"),
        plane.logs / "kube-controller-manager.log",
    )


def _switches(values: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(value).lower()}" for name, value in values.items())
