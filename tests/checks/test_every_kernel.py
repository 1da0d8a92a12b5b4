"""every-kernel-runs-on-target: R04, and the libraries that only look like it."""

from __future__ import annotations

from inventories import ask, container, device_file, judged, scanned

from envcheck.core.model import Domain, Finding, Status, Verdict

ID = "every-kernel-runs-on-target"


def one(sm: str, *parts: object, path: str = "a.so", driver: str | None = None) -> Finding:
    (found,) = ask(ID, scanned(device_file(path, *parts)), sm, driver)
    return found


# R04: `add` for sm_80 alone, `add2` for sm_80 and sm_120, linked into one file.
ADD = container("s80", ("add",))
ADD2 = container("s80 s120", ("add2",))


def test_a_kernel_left_out_of_a_covered_file_is_named() -> None:
    found = one("sm_120", ADD, ADD2)
    assert (found.status, found.domain) == (Status.FAIL, Domain.KERNEL)
    assert found.evidence == {"kernels": ("add",), "count": 1, "objects_left_out": 0}
    assert found.message.endswith("though the file has some: add")
    assert "12.0" in found.remedy
    report = judged(scanned(device_file("a.so", ADD, ADD2)), "sm_120")
    assert report.verdict is Verdict.INCOMPATIBLE
    assert report.summary["line"].startswith("incompatible with sm_120: a.so: 1 kernel(s)")


def test_where_both_have_code_nothing_is_left_out() -> None:
    assert one("sm_80", ADD, ADD2).status is Status.PASS
    assert one("sm_89", ADD, ADD2).status is Status.PASS


def test_a_file_without_any_code_for_the_card_is_no_matter_of_kernels() -> None:
    found = one("sm_90", ADD, ADD2)
    assert (found.status, found.subject) == (Status.SKIP, "(no files)")


def test_containers_that_are_alike_need_no_names() -> None:
    assert one("sm_80", "s80", "s80").status is Status.SKIP
    # A stub makes no difference, and neither does code for one card only.
    stub = container("s75", has_code=False)
    assert one("sm_80", "s80", stub, "s90a").status is Status.SKIP


def test_code_for_one_card_only_may_stand_apart() -> None:
    # cuBLAS style: kernels for sm_90a alone, chosen at run time.
    hopper = container("s90a", ("gemm_sm90",))
    assert one("sm_120", ADD2, container("s120 p120", ("mul",)), hopper).status is Status.PASS


def test_a_variant_of_the_function_for_this_card_is_enough() -> None:
    ampere = container("s80", ("ns::gemm_sm80", "cutlass_80_tensorop"))
    blackwell = container("s120", ("ns::gemm_sm120", "cutlass_120_tensorop"))
    assert one("sm_120", ampere, blackwell).status is Status.PASS
    named = container("s80", ("flash_ampere",)), container("s120", ("flash_blackwell",))
    assert one("sm_120", *named).status is Status.PASS
    other = container("s80", ("ns::gemm_sm80", "reduce_sm80"))
    assert one("sm_120", other, blackwell).evidence["kernels"] == ("reduce_sm80",)


def test_nvidias_own_libraries_choose_for_themselves() -> None:
    found = one("sm_120", ADD, ADD2, path="nvidia/cublas/lib/libcublas.so.12")
    assert found.status is Status.PASS
    assert "by design" in found.message


def test_names_that_were_not_read_are_no_pass() -> None:
    found = one("sm_120", container("s80"), container("s80 s120"))
    assert (found.status, found.required) == (Status.SKIP, False)
    assert "too much code" in found.message


def test_ptx_that_the_driver_cannot_take_leaves_its_kernel_out() -> None:
    parts = container("p80:9.1", ("late",)), container("p80:8.0", ("early",))
    assert one("sm_120", *parts).status is Status.PASS
    found = one("sm_120", *parts, driver="580.65.06")
    assert found.evidence["kernels"] == ("late",)


def test_many_kernels_are_cut_in_the_message_and_counted() -> None:
    names = tuple(f"k{n:03}" for n in range(150))
    found = one("sm_120", container("s80", names), ADD2)
    assert found.message.endswith("k000, k001, k002, ...")
    assert found.evidence["count"] == 150
    assert len(found.evidence["kernels"]) == 100


def relocatable(codes: str, *kernels: str) -> object:
    return container(codes, kernels, section="__nv_relfatbin")


# rdc2_apart_*: the driver links object by object (tests/data/truth-extra).
def test_of_relocatable_objects_each_must_fit_when_the_driver_links() -> None:
    linked = container("s120", ("probe", "add2"))
    parts = linked, relocatable("s120 p80", "probe"), relocatable("s120", "add2")
    assert one("sm_120", *parts).status is Status.PASS
    found = one("sm_90", *parts)
    assert (found.status, found.evidence["kernels"]) == (Status.FAIL, ("add2",))


# rdc2_call_*: a kernel that calls into an object without a match is refused with error 300.
def test_an_object_without_kernels_is_missed_too() -> None:
    linked = container("s120", ("probe",))
    parts = linked, relocatable("s120 p80", "probe"), relocatable("s120")
    assert one("sm_120", *parts).status is Status.PASS
    found = one("sm_90", *parts)
    assert (found.status, found.evidence["objects_left_out"]) == (Status.FAIL, 1)
    assert found.message.startswith("1 relocatable object(s) without code for sm_90")


def test_objects_do_not_matter_while_the_linked_image_runs() -> None:
    linked = container("s90 s120", ("probe",))
    parts = linked, relocatable("p80", "probe"), relocatable("s120")
    assert one("sm_90", *parts).status is Status.PASS
