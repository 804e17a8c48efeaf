"""Who speaks to the API server, and the files by which components are told."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from extender.kube.resources import Resource

ROLES: Final = Resource("Role", "roles", "rbac.authorization.k8s.io", ("v1",), namespaced=True)
ROLE_BINDINGS: Final = Resource("RoleBinding", "rolebindings", ROLES.group, ("v1",), namespaced=True)

ADMIN: Final = "admin"
CONTROLLERS: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
EXTENDER: Final = "dra-extender"
TENANT: Final = "tenant"
"""Somebody who has no rights but those that a test gives."""

KUBELET: Final = "system:node:node-1"
"""Of the only node that has a kubelet, in most tests."""

MORE_KUBELETS: Final = ("system:node:node-2", "system:node:node-3")

_GROUPS: Final[Mapping[str, str]] = {
    ADMIN: "system:masters",
    # Some of our controllers have no role of their own when they run under one identity.
    CONTROLLERS: "system:masters",
    SCHEDULER: "system:authenticated",
    EXTENDER: "system:authenticated",
    TENANT: "system:authenticated",
    **dict.fromkeys((KUBELET, *MORE_KUBELETS), "system:nodes"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """A way into the API server, as one user.

    Attributes:
        certificate: file of who is trusted to be the server.
    """

    url: str
    token: str
    certificate: Path

    def write_kubeconfig(self, path: Path, *, user: str = "", node: str = "") -> Path:
        """A kubeconfig file for this user; JSON, which is YAML.

        Args:
            path: of the file.
            user: another user to act as, if this one is an administrator.
            node: the node that this user's token names, as that of a pod does.
        """
        acts = {"as": user} if user else {}
        extra = {"as-user-extra": {"authentication.kubernetes.io/node-name": [node]}} if node else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.certificate)}}
            ],
            "users": [{"name": "test", "user": {"token": self.token, **acts, **extra}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_bytes(orjson.dumps(config))
        return path


def new_tokens() -> dict[str, str]:
    """A token for each user."""
    return {user: secrets.token_urlsafe(16) for user in _GROUPS}


def write_token_file(path: Path, tokens: dict[str, str]) -> Path:
    """The API server's token file: token, user, uid, groups."""
    path.write_text("".join(f'{token},{user},{user},"{_GROUPS[user]}"\n' for user, token in tokens.items()))
    return path


def write_signing_key(path: Path) -> Path:
    """A new private key for service account tokens: ECDSA on P-256.

    The file is RFC 5915 in PEM without the public key, which the reader computes: a constant frame around the number.
    """
    number = (1 + secrets.randbelow(2**255)).to_bytes(32, "big")
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    key = bytes.fromhex("3031020101") + b"\x04\x20" + number + curve
    path.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{b64encode(key).decode()}\n-----END EC PRIVATE KEY-----\n")
    return path
