"""Images in a tar (docker save, OCI layout): the files that a container of them would see.

Layers are applied in order and whiteouts resolved, as the OCI image specification says, by
reading the headers of all layers first. Only then is each file read, from the layer that it
comes from. Nothing is run, and only the tar itself is needed.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import IO, Any

from envcheck.unpack import UNREADABLE, Budget, Member, tar_entries

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MAX_JSON = 1 << 22
_MAX_FILES = 1 << 21
_MARKS = frozenset({"manifest.json", "oci-layout", "index.json"})


def is_image(handle: IO[bytes]) -> bool:
    """Say whether an uncompressed tar is a docker-save archive or an OCI layout."""
    handle.seek(0)
    try:
        with tarfile.open(fileobj=handle, mode="r:") as tar:
            names = {_clean(info.name) for info in tar}
    except UNREADABLE:
        return False
    blobs = any(name.startswith("blobs/") or name.endswith("/layer.tar") for name in names)
    return blobs and bool(names & _MARKS)


def image_members(handle: IO[bytes], budget: Budget) -> Iterator[Member]:
    """Yield the regular files of the image's root file system; raises ValueError if it is broken.

    Names are paths without the leading slash.
    """
    handle.seek(0)
    with tarfile.open(fileobj=handle, mode="r:") as tar:
        inside = {_clean(info.name): info for info in tar if info.isreg()}
        layers = _layers(tar, inside)
        owners = _resolve(tar, layers, budget)
        for number, layer in enumerate(layers):
            wanted: dict[str, list[str]] = {}
            for path, (owner, source) in owners.items():
                if owner == number:
                    wanted.setdefault(source, []).append(path)
            for info, stream in _entries(tar, layer, budget):
                # Of several hard links the first name stands for all of them.
                for path in sorted(wanted.get(_clean(info.name), ()))[:1]:
                    if stream is not None:
                        yield Member(path, info.size, 0, partial(_same, stream))


def _same(stream: IO[bytes]) -> IO[bytes]:
    return stream


def _clean(name: str) -> str:
    """Return a path as its root sees it: no leading slash, no way out."""
    return posixpath.normpath("/" + name).lstrip("/")


def _entries(
    tar: tarfile.TarFile, layer: tarfile.TarInfo, budget: Budget
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    stream = tar.extractfile(layer)
    if stream is None:
        message = f"layer {layer.name} is not a file"
        raise ValueError(message)
    return tar_entries(stream, budget)


def _resolve(
    tar: tarfile.TarFile, layers: list[tarfile.TarInfo], budget: Budget
) -> dict[str, tuple[int, str]]:
    """Return, for each file that is left, its layer and its name there (hard links differ)."""
    files: dict[str, tuple[int, str]] = {}
    for number, layer in enumerate(layers):
        folders = {folder for path in files for folder in _folders(path)}
        added: dict[str, tuple[int, str]] = {}
        for info, _ in _entries(tar, layer, budget):
            path = _clean(info.name)
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                _remove(files, folder)
            elif name.startswith(_WHITEOUT):
                gone = posixpath.join(folder, name.removeprefix(_WHITEOUT))
                files.pop(gone, None)
                if gone in folders:
                    _remove(files, gone)
            else:
                # Whatever an entry is, it takes the place of what lower layers have there;
                # a folder keeps what is in it.
                files.pop(path, None)
                if path in folders and not info.isdir():
                    _remove(files, path)
                if info.isreg():
                    added[path] = (number, path)
                elif info.islnk():
                    target = _clean(info.linkname)
                    added[path] = added.get(target) or files.get(target) or (number, target)
        files.update(added)
        if len(files) > _MAX_FILES:
            message = f"more than {_MAX_FILES} files"
            raise ValueError(message)
    return files


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _remove(files: dict[str, tuple[int, str]], folder: str) -> None:
    """Forget what lies below a folder of the lower layers."""
    start = folder + "/" if folder else ""
    for path in [p for p in files if p.startswith(start)]:
        del files[path]


def _layers(tar: tarfile.TarFile, inside: dict[str, tarfile.TarInfo]) -> list[tarfile.TarInfo]:
    """Return the layers of the one image, lowest first; raises ValueError."""
    if "manifest.json" in inside:
        images = _json(tar, inside, "manifest.json")
        if not isinstance(images, list) or len(images) != 1 or not isinstance(images[0], dict):
            count = len(images) if isinstance(images, list) else 0
            message = f"manifest.json names {count} images; save exactly one"
            raise ValueError(message)
        names = images[0].get("Layers")
    else:
        names = [_blob(layer) for layer in _oci_layers(tar, inside)]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        message = "the manifest of the image has no list of layers"
        raise ValueError(message)
    missing = [name for name in names if _clean(name) not in inside]
    if missing:
        message = f"layer {missing[0]} is named and not in the archive"
        raise ValueError(message)
    return [inside[_clean(name)] for name in names]


def _oci_layers(tar: tarfile.TarFile, inside: dict[str, tarfile.TarInfo]) -> list[Any]:
    """Follow index.json, through indexes of several platforms, to one manifest."""
    document = _json(tar, inside, "index.json")
    for _ in range(4):
        manifests = document.get("manifests") if isinstance(document, dict) else None
        if not isinstance(manifests, list):
            break
        # Attestations stand beside images as manifests for no platform.
        images = [m for m in manifests if isinstance(m, dict) and _platform(m) != "unknown"]
        if len(images) > 1:
            images = [m for m in images if _platform(m) == "linux/amd64"]
        if len(images) != 1:
            message = f"index.json leads to {len(manifests)} images; save exactly one"
            raise ValueError(message)
        document = _json(tar, inside, _blob(images[0]))
    layers = document.get("layers") if isinstance(document, dict) else None
    if not isinstance(layers, list):
        message = "the manifest of the image has no list of layers"
        raise ValueError(message)  # noqa: TRY004 - what is wrong is the archive
    return layers


def _platform(descriptor: dict[str, Any]) -> str:
    platform = descriptor.get("platform")
    if not isinstance(platform, dict):
        return ""
    system, machine = platform.get("os"), platform.get("architecture")
    return "unknown" if system == "unknown" else f"{system}/{machine}"


def _blob(descriptor: Any) -> str:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or ":" not in digest:
        message = "a descriptor of the image has no digest"
        raise ValueError(message)
    return "blobs/" + digest.replace(":", "/", 1)


def _json(tar: tarfile.TarFile, inside: dict[str, tarfile.TarInfo], name: str) -> Any:
    info = inside.get(name)
    if info is None or info.size > _MAX_JSON:
        message = f"{name} is {'missing' if info is None else 'too large'}"
        raise ValueError(message)
    stream = tar.extractfile(info)
    return json.loads(stream.read() if stream is not None else b"")
