"""The dynamic section and its symbols against pyelftools, and against files that lie."""

from __future__ import annotations

import os
import random
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from build_linking import CC, library
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection

from envcheck.guest import dynamic
from envcheck.guest.dynamic_symbols import Symbols
from envcheck.guest.elf import Malformed
from envcheck.guest.linked_files import LinkedFiles

needs_compiler = pytest.mark.skipif(CC is None, reason="needs a C compiler")


def _files() -> list[Path]:
    standard = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    found = [*sorted(standard.glob("*.so"))[:25], Path(sys.executable).resolve()]
    found += sorted(Path(sysconfig.get_path("platlib")).rglob("*.so*"))[:10]
    found += [Path(p) for p in ("/lib/x86_64-linux-gnu/libc.so.6",) if os.path.exists(p)]
    found += Path("/usr/lib/x86_64-linux-gnu").glob("libstdc++.so.6")
    return [p for p in found if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]


@pytest.mark.parametrize("path", _files(), ids=lambda p: p.name)
def test_names_paths_and_versions_are_what_pyelftools_reads(path):
    data = path.read_bytes()
    read = dynamic.read(data)
    with path.open("rb") as handle:
        elf = ELFFile(handle)
        (section,) = (s for s in elf.iter_sections() if isinstance(s, DynamicSection))
        tags = list(section.iter_tags())
        by = {t.entry.d_tag: t for t in tags}
        assert read.needed == tuple(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED")
        assert read.soname == (by["DT_SONAME"].soname if "DT_SONAME" in by else None)
        assert read.runpath == (by["DT_RUNPATH"].runpath if "DT_RUNPATH" in by else None)
        needs = next((s for s in elf.iter_sections() if isinstance(s, GNUVerNeedSection)), None)
        expected = [
            (need.name, aux.name) for need, every in (needs.iter_versions() if needs else ())
            for aux in every
        ]  # fmt: skip
        assert [(n.file, n.name) for n in read.needs] == expected
        defs = next((s for s in elf.iter_sections() if isinstance(s, GNUVerDefSection)), None)
        names = [next(iter(aux)).name for d, aux in (defs.iter_versions() if defs else ())
                 if not d["vd_flags"] & 1]  # fmt: skip
        assert list(read.definitions.values()) == names


@pytest.mark.parametrize("path", _files(), ids=lambda p: p.name)
def test_symbols_are_what_pyelftools_reads(path):
    data = path.read_bytes()
    read = dynamic.read(data)
    symbols = Symbols(data, read)
    with path.open("rb") as handle:
        elf = ELFFile(handle)
        table = elf.get_section_by_name(".dynsym")
        versions = next((s for s in elf.iter_sections() if isinstance(s, GNUVerSymSection)), None)
        wanted, exported = [], []
        for number, symbol in enumerate(table.iter_symbols()):
            bound = symbol.entry.st_info.bind in ("STB_GLOBAL", "STB_WEAK", "STB_LOOS")
            if not number or not bound:
                continue
            if symbol.entry.st_shndx == "SHN_UNDEF":
                wanted.append(symbol.name.encode())
            elif symbol.entry.st_value:
                index = versions.get_symbol(number)["ndx"] if versions else 1
                exported.append((symbol.name.encode(), index))
    assert [w.name for w in symbols.wanted()] == wanted
    for name, index in exported[:2000]:
        number = index & 0x7FFF if isinstance(index, int) else 1
        assert symbols.exports(name, read.definitions.get(number)), name
        assert not symbols.exports(name, "NO_SUCH_1.0") or number < 2, name
        assert not symbols.exports(name + b"_and_more")
    held = {name for name, _ in exported}
    assert not any(symbols.exports(name) for name in wanted if name not in held)


@needs_compiler
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_each_hash_table_serves(tmp_path, style):
    source = "extern int other(void);" + "".join(
        f"int name_{n}(void) {{ return {n} + other(); }}" for n in range(300)
    )
    path = library(tmp_path / "lib.so", source, flags=(f"-Wl,--hash-style={style}",))
    symbols = Symbols(path.read_bytes(), dynamic.read(path.read_bytes()))
    assert all(symbols.exports(f"name_{n}".encode()) for n in range(300))
    assert not symbols.exports(b"name_300")
    assert b"other" in [w.name for w in symbols.wanted()]
    assert (
        sorted(symbols.beginning_with(b"name_29"))
        == sorted(f"name_{n}".encode() for n in [29, *range(290, 300)][:8])
        or len(symbols.beginning_with(b"name_29")) == 8
    )


@needs_compiler
def test_what_exports_nothing_still_says_what_it_wants(tmp_path):
    script = "{ local: *; };"
    path = library(
        tmp_path / "lib.so", "extern int other(void); int a(void) { return other(); }",
        versions=script, flags=("-Wl,--undefined=a", "-Wl,--hash-style=gnu"),
    )  # fmt: skip
    symbols = Symbols(path.read_bytes(), dynamic.read(path.read_bytes()))
    assert b"other" in [w.name for w in symbols.wanted()]


@needs_compiler
def test_broken_files_are_a_fact_and_take_no_time(tmp_path):
    path = library(
        tmp_path / "lib.so", "extern int other(void); int one(void) { return other(); }",
        versions="V_1 { global: *; };", runpath="$ORIGIN",
    )  # fmt: skip
    data = path.read_bytes()
    chance = random.Random(5)
    began = time.process_time()
    for number in range(1500):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(changed)) if number % 2 else chance.randrange(0x600)
            changed[at] = chance.choice((0, 1, 0xFF, chance.randrange(256)))
        cut = bytes(changed[: chance.randrange(len(changed))] if number % 5 == 0 else changed)
        try:
            read = dynamic.read(cut)
        except Malformed:
            continue
        symbols = Symbols(cut, read)
        assert len(list(symbols.wanted())) < 1 << 22
        assert symbols.exports(b"one", "V_1") in (True, False)
        symbols.relocated({1})
    assert time.process_time() - began < 60


def test_what_is_no_library_is_refused_with_a_reason(tmp_path):
    (tmp_path / "text.so").write_text("INPUT(-lfoo) and some words, so that it is long enough " * 3)
    (tmp_path / "short.so").write_bytes(b"\x7fELF")
    os.mkfifo(tmp_path / "fifo.so")
    (tmp_path / "loop.so").symlink_to(tmp_path / "loop.so")
    files = LinkedFiles()
    assert files.read(str(tmp_path / "text.so")).problem == "invalid ELF header"
    assert files.read(str(tmp_path / "short.so")).problem == "file too short"
    for name in ("fifo.so", "loop.so", "absent.so", "\0.so"):
        assert files.read(str(tmp_path / name)) is None
