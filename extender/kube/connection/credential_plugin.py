"""Credential plugins: programs that give a token or a client certificate (``exec`` in a kubeconfig).

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from allocator.tools import Fields

_EARLY: Final = timedelta(minutes=5)
"""A credential that ends so soon is asked for again."""

_NO_CREDENTIAL: Final = "what it gives is no credential"


class PluginError(Exception):
    """A plugin gives no credential; the text says why."""


@dataclass(frozen=True, slots=True)
class PluginCredential:
    """The credential of a plugin: a token, or a client certificate with its key.

    Attributes:
        certificate, key: PEM; empty: none.
        ends: when it ends; None: it is asked for each time.
    """

    token: str
    certificate: bytes
    key: bytes
    ends: datetime | None


class CredentialPlugin:
    """Runs a program. Its credential is used until shortly before it ends.

    Args:
        fields: of the kubeconfig, checked: command, arguments, variables and version.
        now: the time.
    """

    def __init__(self, fields: Fields, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.command = fields.text("command")
        self._arguments = fields.texts("args")
        self._variables = {each.text("name"): each.text("value") for each in fields.children("env")}
        self._version = fields.text("apiVersion")
        self._now = now
        self._known: PluginCredential | None = None

    async def credential(self) -> PluginCredential:
        """The credential that is in force.

        Raises:
            PluginError: the program fails, or gives no credential.
            OSError: it cannot be run.
        """
        known = self._known
        if known is None or known.ends is None or known.ends - _EARLY <= self._now():
            known = self._known = _read(await self._output(), self._version)
        return known

    async def _output(self) -> bytes:
        told = {
            "apiVersion": self._version,
            "kind": "ExecCredential",
            "spec": {"interactive": sys.stdout.isatty()},
        }
        variables = {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(told)}
        process = await asyncio.create_subprocess_exec(
            self.command, *self._arguments, env=variables, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        if process.returncode:
            said = f". {errors.decode(errors='replace').strip()}" if errors.strip() else ""
            raise PluginError(f"exec: process returned {process.returncode}{said}")
        return output


def _read(output: bytes, version: str) -> PluginCredential:
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise PluginError(f"exec: failed to decode process output: {error}") from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise PluginError(_NO_CREDENTIAL)
    if answer.get("apiVersion") != version:
        raise PluginError(f"exec: plugin api version {answer.get('apiVersion')} does not match {version}")
    names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
    token, certificate, key, ends = (_text(status, name) for name in names)
    if not token and not (certificate and key):
        raise PluginError("it gives neither status.token nor status.clientCertificateData with its key")
    try:
        ending = datetime.fromisoformat(ends) if ends else None
        # A time without a zone is no time of the API.
        return PluginCredential(token, certificate.encode(), key.encode(), ending and ending.astimezone(UTC))
    except ValueError as error:
        raise PluginError(f"status.expirationTimestamp: {error}") from error


def _text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PluginError(_NO_CREDENTIAL)
    return value
