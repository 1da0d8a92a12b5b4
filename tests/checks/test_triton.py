"""The two checks of Triton: the pin of torch, and the assembler that would be run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, device_file, distribution, environment, scanned

from envcheck.core.installed import Installed, Interpreter, Package
from envcheck.core.model import Assembler, Finding, Inventory, Status, Triton
from envcheck.core.tools import Named, Tools

PIN, ASSEMBLER = "triton-matches-torch-pin", "triton-assembler-knows-target"

# Requires-Dist of torch 2.8.0 and 2.14.1 on PyPI.
PINS = {
    "2.8.0": 'triton==3.4.0; platform_system == "Linux" and platform_machine == "x86_64"',
    "2.14.1": 'triton~=3.8.0; platform_system == "Linux"',
}


def pinned(torch: str, triton: str | None, requires: str | None = None) -> Finding:
    line = PINS[torch] if requires is None else requires
    found = [distribution("torch", torch, requires=line)]
    if triton is not None:
        found.append(distribution("triton", triton))
    (finding,) = ask(PIN, environment(distributions=tuple(found)), "sm_120")
    return finding


@pytest.mark.parametrize(
    ("torch", "triton", "status"),
    [
        ("2.8.0", "3.4.0", Status.PASS),
        ("2.8.0", "3.4.0+git1234", Status.PASS),
        ("2.8.0", "3.3.1", Status.FAIL),
        ("2.8.0", "3.5.0", Status.FAIL),
        ("2.14.1", "3.8.0", Status.PASS),
        ("2.14.1", "3.8.1", Status.PASS),
        ("2.14.1", "3.9.0", Status.FAIL),
        ("2.8.0", "unknown", Status.FAIL),
        ("2.8.0", None, Status.WARN),
    ],
)
def test_triton_follows_the_pin_of_torch(torch: str, triton: str | None, status: Status) -> None:
    found = pinned(torch, triton)
    assert found.status is status
    if status is Status.FAIL:
        assert found.remedy == f"pip install '{PINS[torch].split(';')[0]}'"


def test_a_pin_for_another_system_is_none() -> None:
    found = pinned("2.8.0", "3.4.0", 'triton==1.0; platform_system == "Windows"')
    assert (found.status, found.required) == (Status.SKIP, False)


def test_the_pin_for_this_python_is_the_one_that_counts() -> None:
    lines = 'triton==3.2.0; python_version < "3.9"\ntriton==3.4.0; python_version >= "3.9"'
    assert pinned("2.8.0", "3.4.0", lines).status is Status.PASS
    assert pinned("2.8.0", "3.2.0", lines).status is Status.FAIL


def test_the_older_name_of_triton_is_known() -> None:
    torch = distribution("torch", "2.1.0.dev", requires="pytorch-triton==2.1.0+abc")
    good = environment(distributions=(torch, distribution("pytorch-triton", "2.1.0+abc")))
    (found,) = ask(PIN, good, "sm_90")
    assert found.status is Status.PASS


def test_a_pin_that_cannot_be_read_is_passed_over() -> None:
    assert pinned("2.8.0", "3.4.0", "triton=3.4.0").status is Status.SKIP


def test_without_torch_there_is_no_pin() -> None:
    for inventory in (environment(), scanned(device_file("a.so", "s80"))):
        (found,) = ask(PIN, inventory, "sm_120")
        assert (found.status, found.required) == (Status.SKIP, False)


# What the wheels on PyPI carry, by running each of their assemblers.
WHEELS = {
    "3.1.0": {"ptxas": "12.4"},
    "3.3.0": {"ptxas": "12.4", "ptxas-blackwell": "12.8"},
    "3.5.1": {"ptxas": "12.8"},
    "3.8.0": {"ptxas": "12.9", "ptxas-blackwell": "13.3"},
    "3.9.0": {"ptxas": "12.9", "ptxas-blackwell": "13.4"},
}


def wheel(version: str, **assemblers: str | None) -> Inventory:
    known = assemblers or WHEELS[version]
    made = tuple(Assembler(name=n.replace("_", "-"), version=v) for n, v in known.items())
    return environment(triton=Triton(version=version, assemblers=made))


def assembles(version: str, sm: str, **assemblers: str | None) -> Finding:
    (found,) = ask(ASSEMBLER, wheel(version, **assemblers), sm)
    return found


# The matrix was measured by compiling with each wheel (R06; triton#8539, pytorch#148551).
@pytest.mark.parametrize(
    ("version", "knows", "not_knows"),
    [
        ("3.1.0", ["sm_80", "sm_89", "sm_90"], ["sm_100", "sm_120", "sm_121", "sm_103"]),
        ("3.3.0", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"], ["sm_121", "sm_103"]),
        ("3.5.1", ["sm_89", "sm_90", "sm_100", "sm_120"], ["sm_121", "sm_103", "sm_110"]),
        ("3.8.0", ["sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"], []),
        ("3.9.0", ["sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"], []),
    ],
)
def test_which_triton_can_assemble_for_which_card(
    version: str, knows: list[str], not_knows: list[str]
) -> None:
    found = {sm: assembles(version, sm).status for sm in (*knows, *not_knows)}
    assert found == {
        **dict.fromkeys(knows, Status.PASS),
        **dict.fromkeys(not_knows, Status.FAIL),
    }


@pytest.mark.parametrize(
    ("version", "sm", "name"),
    [
        ("3.3.0", "sm_90", "ptxas"),
        ("3.3.0", "sm_120", "ptxas-blackwell"),
        ("3.8.0", "sm_90", "ptxas"),
        ("3.9.0", "sm_90", "ptxas-blackwell"),
        ("3.9.0", "sm_89", "ptxas"),
        ("3.5.1", "sm_120", "ptxas"),
    ],
)
def test_the_assembler_is_chosen_as_triton_does(version: str, sm: str, name: str) -> None:
    assert assembles(version, sm).evidence["assembler"] == name


def test_code_is_for_the_one_card_from_hopper_on() -> None:
    assert assembles("3.8.0", "sm_120").evidence["target"] == "sm_120a"
    assert assembles("3.8.0", "sm_90").evidence["target"] == "sm_90a"
    assert assembles("3.8.0", "sm_89").evidence["target"] == "sm_89"


def test_a_failure_names_the_release_that_would_do() -> None:
    found = assembles("3.1.0", "sm_120")
    assert "ptxas 12.4 does not know sm_120a (first in CUDA 12.8)" in found.message
    assert found.remedy == "pip install --upgrade 'torch>=2.8.0'"
    # ptxas 12.8 of Triton 3.4 to 3.6 does not know these; 2.11 came with Triton 3.6's second one.
    assert assembles("3.5.1", "sm_121").remedy == "pip install --upgrade 'torch>=2.11.0'"


def test_an_assembler_that_does_not_tell_its_release_warns() -> None:
    """A script that runs another one, perhaps."""
    found = assembles("3.8.0", "sm_89", ptxas=None)
    assert (found.status, found.message) == (Status.WARN, "its ptxas does not tell its release")


def left(
    *names: str, version: str = "3.8.0", installer: str = "pip", named: tuple[Named, ...] = ()
) -> Inventory:
    """An environment with an installed Triton of which those assemblers are left."""
    made = wheel(version, **{n.replace("-", "_"): "13.3" for n in names})
    assert made.environment is not None
    package = Package(name="triton", version=version, info="triton", installer=installer)
    interpreter = Interpreter(markers={}, suffixes=())
    return replace(
        made,
        environment=replace(
            made.environment,
            installed=Installed(interpreter=interpreter, packages=(package,)),
            tools=Tools(named=named),
        ),
    )


# By get_ptxas of each wheel (3.4.0 and 3.5.1 ask for no second one); none of them falls back.
@pytest.mark.parametrize(
    ("version", "names", "sm", "status"),
    [
        ("3.3.0", ("ptxas",), "sm_120", Status.FAIL),
        ("3.5.1", ("ptxas",), "sm_120", Status.PASS),
        ("3.6.0", ("ptxas",), "sm_120", Status.FAIL),
        ("3.8.0", ("ptxas",), "sm_120", Status.FAIL),
        ("3.8.0", ("ptxas",), "sm_90", Status.PASS),
        ("3.9.0", ("ptxas",), "sm_90", Status.FAIL),
        ("3.8.0", ("ptxas-blackwell",), "sm_89", Status.FAIL),
        # Builds of one's own may run another: that is not known here.
        ("3.8.0+gitabc", ("ptxas",), "sm_120", Status.PASS),
        ("3.8.0+gitabc", ("ptxas-blackwell",), "sm_89", Status.WARN),
    ],
)
def test_no_other_assembler_stands_in_for_one_that_is_gone(
    version: str, names: tuple[str, ...], sm: str, status: Status
) -> None:
    (found,) = ask(ASSEMBLER, left(*names, version=version), sm)
    assert found.status is status


def test_what_is_gone_is_named_with_the_command_that_brings_it_back() -> None:
    (found,) = ask(ASSEMBLER, left("ptxas"), "sm_120")
    assert found.message == (
        "its ptxas-blackwell is missing: torch.compile and Triton kernels cannot be compiled"
    )
    assert found.remedy == "pip install --force-reinstall --no-deps 'triton==3.8.0'"


def test_conda_leaves_the_assembler_to_a_package_of_its_own() -> None:
    (found,) = ask(ASSEMBLER, left("ptxas", installer="conda"), "sm_120")
    assert found.status is Status.WARN


@pytest.mark.parametrize(("found", "status"), [("file", Status.WARN), ("absent", Status.FAIL)])
def test_a_variable_may_name_another_in_its_place(found: str, status: Status) -> None:
    one = Named(variable="TRITON_PTXAS_BLACKWELL_PATH", value="/x/ptxas", found=found)
    (finding,) = ask(ASSEMBLER, left("ptxas", named=(one,)), "sm_120")
    assert finding.status is status
    for_ptxas = replace(one, variable="TRITON_PTXAS_PATH")
    (finding,) = ask(ASSEMBLER, left("ptxas", named=(for_ptxas,)), "sm_120")
    assert finding.status is Status.FAIL


def test_an_assembler_that_nobody_can_run_fails() -> None:
    broken = Assembler(name="ptxas", version="12.9", problem="is not executable")
    made = environment(triton=Triton(version="3.8.0", assemblers=(broken,)))
    (found,) = ask(ASSEMBLER, made, "sm_89")
    assert found.status is Status.FAIL
    assert found.message.startswith("its ptxas is not executable: ")


def test_a_card_that_no_table_knows_is_skipped() -> None:
    assert assembles("3.8.0", "sm_61").status is Status.SKIP


def test_a_version_of_another_form_is_taken_for_an_old_one() -> None:
    found = assembles("main", "sm_120", ptxas="12.4", ptxas_blackwell="12.8")
    assert (found.status, found.evidence["assembler"]) == (Status.PASS, "ptxas-blackwell")


def test_without_triton_there_is_nothing_to_run() -> None:
    for inventory in (environment(), scanned(device_file("a.so", "s80"))):
        (found,) = ask(ASSEMBLER, inventory, "sm_120")
        assert (found.status, found.required) == (Status.SKIP, False)
