"""Images are read as a container would see them: the expectations follow the OCI image spec."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from envcheck import image_tar, unpack
from envcheck.sources import read_paths

DATA = Path(__file__).parent / "data" / "truth" / "objects"
CUBIN = (DATA / "cu12.8__rawsass_90.cubin").read_bytes()
OTHER = (DATA / "cu13.0__rawsass_120.cubin").read_bytes()


def tar(entries, *, mode="w"):
    """Build a tar of (name, bytes | "dir" | "->target" symlink | "=target" hard link)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if content == "dir":
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type = tarfile.SYMTYPE if content[0] == "-" else tarfile.LNKTYPE
                info.linkname = content.lstrip("->=")
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


def docker_save(layers):
    names = [f"{number:064x}/layer.tar" for number in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": names}]).encode()
    return tar([*zip(names, layers, strict=True), ("manifest.json", manifest)])


def oci(layers, *, platforms=("linux/amd64",)):
    blobs = {}

    def blob(data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = blob(json.dumps({"layers": [blob(layer) for layer in layers]}).encode())
    other = blob(json.dumps({"layers": []}).encode())
    listed = []
    for platform in platforms:
        system, machine = platform.split("/")
        chosen = manifest if platform == "linux/amd64" else other
        listed.append({**chosen, "platform": {"os": system, "architecture": machine}})
    index = json.dumps({"manifests": listed}).encode()
    return tar([("oci-layout", b"{}"), ("index.json", index), *blobs.items()])


def files(data):
    handle = io.BytesIO(data)
    assert image_tar.is_image(handle)
    budget = unpack.Budget(len(data))
    return {m.name: m.open().read() for m in image_tar.image_members(handle, budget)}


@pytest.mark.parametrize("form", [docker_save, oci])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_an_upper_layer_replaces_a_file_whatever_packs_the_layers(form, pack):
    lower = pack(tar([("usr", "dir"), ("usr/a", b"old"), ("usr/b", b"kept")]))
    upper = pack(tar([("usr/a", b"new")]))
    assert files(form([lower, upper])) == {"usr/a": b"new", "usr/b": b"kept"}


def test_a_whiteout_removes_a_file_and_a_folder_of_lower_layers_only():
    lower = tar([("a", b"1"), ("d/x", b"2"), ("d/y/z", b"3"), ("dd", b"4")])
    upper = tar([(".wh.a", b""), (".wh.d", b""), ("d/new", b"5")])
    assert files(docker_save([lower, upper])) == {"dd": b"4", "d/new": b"5"}


def test_an_opaque_folder_hides_what_lower_layers_have_in_it():
    lower = tar([("d/x", b"1"), ("d/s/y", b"2"), ("e", b"3")])
    upper = tar([("d/.wh..wh..opq", b""), ("d/new", b"4")])
    assert files(docker_save([lower, upper])) == {"e": b"3", "d/new": b"4"}


def test_a_file_in_place_of_a_folder_hides_the_folder_and_a_folder_hides_a_file():
    lower = tar([("d/x", b"1"), ("f", b"2"), ("l/x", b"3")])
    upper = tar([("d", b"file"), ("f", "dir"), ("f/y", b"4"), ("l", "->elsewhere")])
    assert files(docker_save([lower, upper])) == {"d": b"file", "f/y": b"4"}


def test_a_file_that_is_removed_and_added_again_is_there():
    layers = [tar([("a", b"1")]), tar([(".wh.a", b"")]), tar([("a", b"3")])]
    assert files(docker_save(layers)) == {"a": b"3"}


def test_a_hard_link_outlives_the_name_it_was_made_from():
    lower = tar([("a", b"1"), ("b", "=a")])
    upper = tar([(".wh.a", b"")])
    assert files(docker_save([lower, upper])) == {"b": b"1"}


def test_names_cannot_leave_the_root():
    lower = tar([("../../etc/passwd", b"1"), ("/abs", b"2"), ("./x/../y", b"3")])
    assert files(docker_save([lower])) == {"etc/passwd": b"1", "abs": b"2", "y": b"3"}


def test_of_several_platforms_the_one_for_linux_amd64_is_read():
    data = oci([tar([("a", b"1")])], platforms=("linux/arm64", "linux/amd64", "unknown/unknown"))
    assert files(data) == {"a": b"1"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tar([("manifest.json", b"[]"), ("blobs/sha256/00", b"")]), "0 images"),
        (tar([("manifest.json", b"[{}, {}]"), ("blobs/sha256/00", b"")]), "2 images"),
        (tar([("manifest.json", b'[{"Layers": ["gone"]}]'), ("blobs/x", b"")]), "gone"),
        (tar([("manifest.json", b'[{"Layers": 3}]'), ("blobs/x", b"")]), "no list of layers"),
        (tar([("index.json", b"{}"), ("blobs/x", b"")]), "no list of layers"),
        (tar([("index.json", b"{"), ("blobs/x", b"")]), ""),
        (oci([], platforms=("linux/arm64", "linux/s390x")), "2 images"),
    ],
)
def test_a_broken_image_is_one_problem_that_says_what_is_wrong(tmp_path, data, reason):
    path = tmp_path / "image.tar"
    path.write_bytes(data)
    (seen,) = read_paths([str(path)], lambda name, size: None)
    assert reason in seen.file.problem


def test_a_tar_that_only_has_a_manifest_is_no_image():
    assert not image_tar.is_image(io.BytesIO(tar([("manifest.json", b"[]"), ("a", b"")])))
    assert not image_tar.is_image(io.BytesIO(b"not a tar"))


def test_scan_names_the_files_of_an_image_and_judges_only_what_is_left(tmp_path):
    lower = tar([("opt/k.cubin", CUBIN), ("opt/gone.cubin", CUBIN)])
    upper = gzip.compress(tar([("opt/k.cubin", OTHER), ("opt/.wh.gone.cubin", b"")]))
    path = tmp_path / "image.tar"
    path.write_bytes(docker_save([lower, upper]))
    seen = [s.file for s in read_paths([str(path)], lambda name, size: None) if s.file]
    assert [(f.path, f.containers[0].code[0].sm) for f in seen] == [
        (f"{path}!/opt/k.cubin", "sm_120")
    ]
