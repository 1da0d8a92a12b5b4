"""The forms of variables that choose cards, by the documents that define them."""

from __future__ import annotations

import pytest

from envcheck.core.device_selection import cuda_visible, nvidia_visible

UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"  # the guide's own example


FORMS: list[tuple[str | None, tuple[str, ...] | None]] = [
    (None, None),
    ("", ()),
    (" ", ()),
    ("0", ("0",)),
    ("2,1", ("2", "1")),  # the guide's
    ("0,2,-1,1", ("0", "2")),  # the guide's
    ("-1", ()),
    ("NoDevFiles", ()),
    ("0, 1", ("0", "1")),
    (f"GPU-{UUID}", (f"GPU-{UUID}",)),
    ("GPU-8932f937", ("GPU-8932f937",)),  # the guide's
    ("GPU-8932f937,GPU-a", ("GPU-8932f937", "GPU-a")),
    (f"MIG-{UUID}", (f"MIG-{UUID}",)),
    (f"MIG-GPU-{UUID}/1/2", (f"MIG-GPU-{UUID}/1/2",)),  # the guide's form
    ("0,0", ()),
    ("0,GPU-8932f937", ("0",)),
    ("GPU-8932f937,0", ("GPU-8932f937",)),
    ("0,,1", ("0",)),
    (",0", ()),
    ("0,", ("0",)),
    ("all", ()),
    ("none", ()),
    ("cuda:0", ()),
    ("0;1", ("0",)),
    ("'0'", ()),
    (UUID, ("8932",)),  # without its prefix
    ("0x1", ("0",)),
    ("1gpu2,2ampere", ("1", "2")),  # PyTorch's own example
]
VALUES = [value for value, _ in FORMS if value is not None]


@pytest.mark.parametrize(("value", "shown"), FORMS)
def test_what_cuda_shows(value: str | None, shown: tuple[str, ...] | None) -> None:
    chosen = cuda_visible(value)
    assert chosen.shown == shown
    assert chosen.hides_all is (shown == ())
    asked = [] if value is None else [part.strip() for part in value.split(",")]
    assert bool(chosen.problems) is (list(shown or ()) != asked)


@pytest.mark.parametrize("value", VALUES)
def test_pytorch_reads_the_same(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("torch.cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    shown = cuda_visible(value).shown
    assert [str(card) for card in cuda._parse_visible_devices()] == list(shown or ())


# C's strtol knows ASCII digits alone: Arabic-Indic, Devanagari and fullwidth ones, a superscript.
@pytest.mark.parametrize("digit", ["\u0660", "\u0966", "\uff10", "\u00b2"])
def test_digits_of_other_scripts_are_no_index(digit: str) -> None:
    chosen = cuda_visible(digit)
    assert (chosen.shown, chosen.form) == ((), "none")
    assert "neither an index nor the UUID" in chosen.problems[0]
    assert cuda_visible(f"0,{digit}").shown == ("0",)
    assert cuda_visible(f"0{digit}").problems == (f"'0{digit}' is read as the index 0",)
    assert "neither an index" in cuda_visible(f"-{digit}").problems[0]
    assert cuda_visible(f"MIG-GPU-{UUID}/{digit}/0").shown == ()
    for value in (digit, f"{digit}:0", f"nvidia.com/gpu={digit}"):
        assert (nvidia_visible(value).shown, len(nvidia_visible(value).problems)) == ((), 1)


def test_case_and_zeros_make_no_other_card() -> None:
    """PyTorch compares letters; a driver looks for cards."""
    assert cuda_visible("GPU-a,GPU-A").hides_all
    assert cuda_visible("0,1,00").hides_all


def test_of_several_mig_devices_one_is_used() -> None:
    chosen = cuda_visible("MIG-a,MIG-b")
    assert chosen.problems == (
        "a process uses one MIG device: of several only the first is enumerated",
    )


@pytest.mark.parametrize(
    ("value", "shown", "problems"),
    [
        (None, (), 0),
        ("", (), 1),
        ("all", None, 0),
        ("none", (), 1),
        ("void", (), 1),
        ("0,1,2", ("0", "1", "2"), 0),
        ("GPU-fef8089b", ("GPU-fef8089b",), 0),
        (f"MIG-{UUID}", (f"MIG-{UUID}",), 0),
        ("0:1", ("0:1",), 0),
        ("nvidia.com/gpu=0", ("nvidia.com/gpu=0",), 0),
        ("first", (), 1),
    ],
)
def test_what_the_container_runtime_shows(
    value: str | None, shown: tuple[str, ...] | None, problems: int
) -> None:
    chosen = nvidia_visible(value)
    assert (chosen.shown, len(chosen.problems)) == (shown, problems)
