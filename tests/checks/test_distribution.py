"""distribution-runs-on-target: the files of a distribution taken together."""

from __future__ import annotations

from dataclasses import replace

from inventories import ask, device_file, distribution, environment, judged, scanned

from envcheck.core.device_file import DeviceFile
from envcheck.core.distribution import Distribution
from envcheck.core.model import Status, Torch, Verdict

ID = "distribution-runs-on-target"

FILES = (
    device_file("native/_C.so", "s120"),
    device_file("jit/_A.so", "s120"),
    device_file("jit/_B.so", "p90:8.4"),
    device_file("missing/_A.so", "s120"),
    device_file("missing/_B.so", "s80"),
    DeviceFile(path="plain/_C.so", format="shared-object", size=1, skipped="no device code"),
)
OWNERS = (
    distribution("native", "1.0", "native/_C.so"),
    distribution("jit", "2.0", "jit/_A.so", "jit/_B.so"),
    distribution("missing", "3.0", "missing/_A.so", "missing/_B.so"),
    distribution("plain", "4.0", "plain/_C.so"),
    distribution("pure", "5.0"),
)


def test_each_distribution_with_device_code_is_native_jit_or_missing() -> None:
    found = ask(ID, environment(*FILES, distributions=OWNERS), "sm_120")
    assert [(f.subject, f.status, f.evidence["mode"]) for f in found] == [
        ("native 1.0", Status.PASS, "native"),
        ("jit 2.0", Status.WARN, "jit"),
        ("missing 3.0", Status.FAIL, "none"),
    ]
    assert found[1].evidence["files"] == {"native": ("jit/_A.so",), "jit": ("jit/_B.so",)}
    assert found[2].evidence["files"]["none"] == ("missing/_B.so",)
    assert found[2].message == "missing: 1 of 2 file(s) without code for sm_120"
    assert all(f.remedy for f in found[1:])


def test_a_driver_too_old_makes_jit_a_failure() -> None:
    inventory = environment(*FILES[1:3], distributions=OWNERS[1:2])
    (found,) = ask(ID, inventory, "sm_120", "535.54.03")
    assert (found.status, found.remedy) == (
        Status.FAIL,
        "use a host with driver 550.54.14 or newer",
    )


def test_files_that_no_distribution_owns_are_judged_together() -> None:
    found = ask(ID, environment(FILES[0], FILES[4], distributions=OWNERS[:1]), "sm_120")
    assert [(f.subject, f.status) for f in found] == [
        ("native 1.0", Status.PASS),
        ("(files of no distribution)", Status.FAIL),
    ]


def test_only_what_would_be_loaded_counts() -> None:
    variants = [
        device_file("bitsandbytes/libbitsandbytes_cuda118.so", "s80"),
        device_file("bitsandbytes/libbitsandbytes_cuda128.so", "s120"),
    ]
    owner = distribution("bitsandbytes", "0.50", *(v.path for v in variants))
    inventory = environment(
        *variants, distributions=(owner,), torch=Torch(version="2.8", cuda="12.8")
    )
    (found,) = ask(ID, inventory, "sm_120")
    assert (found.status, found.message) == (Status.PASS, "native: 1 file(s)")


def test_nothing_to_say_is_said() -> None:
    (of_files,) = ask(ID, scanned(FILES[0]), "sm_120")
    assert (of_files.status, of_files.required) == (Status.SKIP, False)
    (of_pure,) = ask(ID, environment(distributions=OWNERS[4:]), "sm_120")
    assert (of_pure.subject, of_pure.status) == ("(no distribution)", Status.SKIP)


def test_a_package_of_loose_kernels_alone_is_said() -> None:
    """As flashinfer-cubin is: files that their package picks from, of which none must fit."""
    cubin = replace(device_file("cubins/a.cubin", "s90"), format="cubin")
    owner = distribution("cubins", "1.0", cubin.path)
    (found,) = ask(ID, environment(cubin, distributions=(owner,)), "sm_120")
    assert (found.subject, found.status, found.required) == (
        "(no distribution)",
        Status.SKIP,
        False,
    )
    assert "1 file(s)" in found.message


def test_a_record_that_cannot_be_parsed_warns_with_its_reason() -> None:
    why = "RECORD: not UTF-8 at byte 3"
    broken = Distribution(name="cut", version="1!2.0", record_digest="0" * 64, problem=why)
    inventory = environment(FILES[0], distributions=(OWNERS[0], broken))
    found = {f.subject: f for f in ask(ID, inventory, "sm_120")}
    assert {s: f.status for s, f in found.items()} == {
        "native 1.0": Status.PASS,
        "cut 1!2.0": Status.WARN,
    }
    assert found["cut 1!2.0"].message == f"which files belong to it is not known: {why}"
    assert found["cut 1!2.0"].remedy == "pip install --force-reinstall 'cut==1!2.0'"
    assert judged(inventory, "sm_120").verdict is Verdict.COMPATIBLE


def test_one_broken_record_among_nothing_else_is_still_said() -> None:
    broken = Distribution(name="cut", version="2.0", record_digest="0" * 64, problem="RECORD: x")
    warned, skipped = ask(ID, environment(distributions=(broken,)), "sm_120")
    assert (warned.status, skipped.status) == (Status.WARN, Status.SKIP)
    assert warned.remedy == "pip install --force-reinstall cut==2.0"
