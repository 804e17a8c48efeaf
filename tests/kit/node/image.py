"""A container image: an OCI image layout in a tar file, as containerd imports it."""

import io
import platform
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from extender.kube.api import RawObject

FOLDERS: Final = ("dev", "etc", "proc", "sys", "tmp")
"""Where a runtime mounts what each container has."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""By the kernel's name."""

_MEDIA: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """An image.

    Attributes:
        name: with a tag, as pods say it.
        layers: tar files, the lowest one first.
        config: what containers of it run, and how: the member ``config`` of an image's configuration.
    """

    name: str
    layers: tuple[bytes, ...]
    config: RawObject


def write_images(path: Path, *images: Image) -> None:
    """Write images into one tar file, which has what they share once.

    Raises:
        OSError: the file cannot be written.
    """
    kind = f"{_MEDIA}.manifest.v1+json"
    listed = []
    with tarfile.open(path, "w") as tar:
        for image in images:
            config = {
                "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": image.config,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in image.layers]},
            }
            layers = [_add_blob(tar, f"{_MEDIA}.layer.v1.tar", layer) for layer in image.layers]
            described = _add_blob(tar, f"{_MEDIA}.config.v1+json", orjson.dumps(config))
            manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers}
            named = {"annotations": {"io.containerd.image.name": image.name}}
            listed.append(_add_blob(tar, kind, orjson.dumps(manifest)) | named)
        _add(tar, "index.json", orjson.dumps({"schemaVersion": 2, "manifests": listed}))
        _add(tar, "oci-layout", orjson.dumps({"imageLayoutVersion": "1.0.0"}))


def program_image(name: str, program: Path, arguments: tuple[str, ...] = ()) -> Image:
    """An image with one program, which needs no file but itself.

    Args:
        program: the file on this machine.
        arguments: of the program, unless a pod has others.

    Raises:
        OSError: the program cannot be read.
    """
    config = {"Entrypoint": [f"/{program.name}"], "Cmd": list(arguments)}
    return Image(name, (_layer_of_program(program),), config)


def layer_of(folder: Path) -> bytes:
    """All files below a folder, as a layer: root's, with their modes and times."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_of_root)
    return content.getvalue()


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _layer_of_program(program: Path) -> bytes:
    """The file system: empty folders, and the program."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        _add(tar, program.name, program.read_bytes(), mode=0o755)
    return content.getvalue()


def _add_blob(tar: tarfile.TarFile, media_type: str, content: bytes) -> RawObject:
    """Add content under its digest, unless it is there; how others refer to it."""
    digest = _digest(content)
    name = f"blobs/{digest.replace(':', '/')}"
    if name not in tar.getnames():
        _add(tar, name, content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"
