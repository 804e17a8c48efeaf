"""The cluster, the namespace and the service that a command asks: the options that all commands share."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from extender.config.settings import Settings
from extender.faces.commands.options import ConfigOption, Kubeconfig, KubeconfigOptions, OptionGroup
from extender.faces.commands.output import fail
from extender.faces.commands.reading import settings_of
from extender.faces.commands.remote import Remote, RemoteOptions
from extender.kube.connection.credentials import Origin, choose, find_origin

_DEFAULT_NAMESPACE: Final = "default"
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""In a pod, the namespace of its account."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command looks.

    Attributes:
        origin: of the address and the credentials of the API server; None: a URL of the service is given instead.
        namespace: of the objects that are named; empty: all namespaces.
        service_namespace: of the pods of dra-extender.
        service_port: of dra-extender in its pods.
        remote: the service, if its URL is given.
        settings: for what is computed here.
        is_local: no service is asked.
    """

    origin: Origin | None
    namespace: str = _DEFAULT_NAMESPACE
    service_namespace: str = "kube-system"
    service_port: int = 8888
    remote: Remote | None = None
    settings: Settings = field(default_factory=Settings)
    is_local: bool = False

    def named(self, what: str) -> str:
        """The one namespace of an object that a command names; ends the command if there is none."""
        if not self.namespace:
            fail(f"{what} is in one namespace: give -n NAMESPACE, not -A")
        return self.namespace


def _place(
    *,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAME", help="The namespace; default: that of the context."),
    ] = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")] = False,
    kubeconfig: KubeconfigOptions,
    service_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace of the pods of dra-extender.")
    ] = "kube-system",
    service_port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65535, help="The port of dra-extender in its pods.")
    ] = 8888,
    local: Annotated[
        bool, typer.Option("--local", help="Ask no service: compute from the objects of the API server.")
    ] = False,
    config: ConfigOption = None,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The service is here: no pod is looked for, and no port is forwarded.")
    ] = "",
    remote: RemoteOptions,
) -> Place:
    """The place by the options; ends the command if they contradict each other.

    Raises:
        RemoteError, SettingsError: options of the service or settings cannot be used.
        ConnectError: there is no kubeconfig.
    """
    if namespace and all_namespaces:
        fail("-n and -A: only one of them")
    remote = remote.at(server)
    if server and local:
        fail("--server and --local: only one of them")
    if server and kubeconfig.is_given:
        fail("--server needs no --kubeconfig and no --context")
    origin, own = (None, "") if server else _origin(kubeconfig)
    where = "" if all_namespaces else namespace or own or _DEFAULT_NAMESPACE
    settings = settings_of(config)
    return Place(origin, where, service_namespace, service_port, remote if server else None, settings, local)


def _origin(kubeconfig: Kubeconfig) -> tuple[Origin, str]:
    """The API server, and the namespace of the context."""
    origin = find_origin(*kubeconfig, os.environ)
    if origin.files:
        return origin, choose(origin.files, origin.context).namespace
    return origin, _ACCOUNT_NAMESPACE.read_text().strip() if _ACCOUNT_NAMESPACE.exists() else ""


PlaceOptions = Annotated[Place, OptionGroup(_place)]
