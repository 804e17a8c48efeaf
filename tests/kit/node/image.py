"""A container image of one program: an OCI image layout in a tar file, as containerd imports it."""

import io
import platform
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from extender.kube.api import RawObject

_FOLDERS: Final = ("dev", "etc", "proc", "sys", "tmp")
"""Where a runtime mounts what each container has."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""By the kernel's name."""

_MEDIA: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """An image with one program, which needs no file but itself.

    Attributes:
        name: with a tag, as pods say it.
        program: the file on this machine.
        arguments: of the program, unless a pod has others.
    """

    name: str
    program: Path
    arguments: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write the tar file.

        Raises:
            OSError: the program cannot be read, or the file cannot be written.
        """
        layer = _layer(self.program)
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{self.program.name}"], "Cmd": list(self.arguments)},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        with tarfile.open(path, "w") as tar:
            layers = [_add_blob(tar, f"{_MEDIA}.layer.v1.tar", layer)]
            described = _add_blob(tar, f"{_MEDIA}.config.v1+json", orjson.dumps(config))
            kind = f"{_MEDIA}.manifest.v1+json"
            manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers}
            listed = _add_blob(tar, kind, orjson.dumps(manifest))
            listed["annotations"] = {"io.containerd.image.name": self.name}
            _add(tar, "index.json", orjson.dumps({"schemaVersion": 2, "manifests": [listed]}))
            _add(tar, "oci-layout", orjson.dumps({"imageLayoutVersion": "1.0.0"}))


def _layer(program: Path) -> bytes:
    """The file system: empty folders, and the program."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        _add(tar, program.name, program.read_bytes(), mode=0o755)
    return content.getvalue()


def _add_blob(tar: tarfile.TarFile, media_type: str, content: bytes) -> RawObject:
    """Add content under its digest; how others refer to it."""
    digest = _digest(content)
    _add(tar, f"blobs/{digest.replace(':', '/')}", content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"
