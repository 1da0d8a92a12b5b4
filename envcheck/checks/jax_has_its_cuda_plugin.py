"""JAX has a CUDA plugin that it takes, with the libraries that it asks for before it does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envcheck.checks import jax_libraries, pins
from envcheck.checks.check import Check, Question
from envcheck.checks.jax_libraries import CPU
from envcheck.checks.remedies import owner
from envcheck.core.installed import Installed, Package
from envcheck.core.jit_needs import release
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.variables import OF_JAX

# What JAX takes and asks for. Source: jax 0.10.2, jax_plugins/xla_cuda13/__init__.py (`initialize`,
# `_check_cuda_versions`) and jax/_src/xla_bridge.py (`discover_pjrt_plugins`, which logs what a plugin
# raises and goes on with the CPU); jaxlib/plugin_support.py (`check_plugin_version`) of jaxlib 0.5.3
# to 0.10.2, which 0.5.0 does not have. Each case was tried with the wheels of 0.10.2.
_HALF = re.compile(r"jax-cuda(?P<major>\d+)-(?P<kind>plugin|pjrt)")
_COMPARES = (0, 5, 3)

Parts = dict[str, dict[str, Package]]
"""CUDA major -> `plugin` and `pjrt`."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None:
        yield CHECK.skip("jax", "no installed packages were looked at")
        return
    there = {name: same[0] for name, same in pins.active(environment.installed).items()}
    jaxlib = there.get("jaxlib")
    parts: Parts = {}
    for name, package in there.items():
        if half := _HALF.fullmatch(name):
            parts.setdefault(half["major"], {})[half["kind"]] = package
    if jaxlib is None or "jax" not in there:
        yield CHECK.skip("jax", "JAX is not installed in what was looked at")
    elif not parts:
        yield _without(question, there, jaxlib)
        own = "cuda" in jaxlib.version or any(name.startswith("jax-rocm") for name in there)
        if not own:
            yield from _platforms(environment.variables or {}, plugin=False)
    else:
        found = list(_faults(parts, there, jaxlib)) or list(
            _libraries(parts, environment.installed, question)
        )
        found += _platforms(environment.variables or {}, plugin=True)
        yield from found
        if not found:
            names = " and ".join(
                f"{p.name} {p.version}" for one in parts.values() for p in one.values()
            )
            yield CHECK.finding(f"jaxlib {jaxlib.version}", Status.PASS, f"takes {names}")


def _platforms(variables: Mapping[str, str], *, plugin: bool) -> Iterator[Finding]:
    """Judge the variables that name JAX's backend; it works on the first, and ends without any.

    Source: jax 0.10.2, jax/_src/config.py, `jax_platforms`, and xla_bridge.py, `backends`.
    """
    for name in OF_JAX:
        value = variables.get(name, "")
        named = [one.strip().lower() for one in value.split(",")]
        on_card = [one in ("cuda", "gpu") for one in named]
        if plugin and value and not on_card[0]:
            status, message = Status.WARN, f"JAX works on {named[0]}, and the card is not used"
        elif not plugin and any(on_card):
            status, message = Status.FAIL, "JAX ends with it: no jax-cuda plugin is installed"
        else:
            continue
        yield CHECK.finding(
            f"{name}={value[:80]}", status, message, remedy=f"unset {name}", domain=Domain.JOB
        )


def _without(question: Question, there: Mapping[str, Package], jaxlib: Package) -> Finding:
    """Judge a JAX without any plugin, which is meant for the CPU unless nothing else is here.

    Where NVIDIA's libraries are alone in holding device code, nobody but JAX could use them.
    """
    subject = f"jaxlib {jaxlib.version}"
    if "cuda" in jaxlib.version.partition("+")[2]:
        return CHECK.finding(subject, Status.PASS, "holds its part for CUDA itself")
    if any(name.startswith(("jax-rocm", "libtpu", "jax-metal")) for name in there):
        return CHECK.skip(subject, "its plugin is for another kind of card")
    owners = {owner(path, question) for path in question.roles}
    majors = {m[1] for name in there if (m := re.fullmatch(r"nvidia-cudnn-cu(\d+)", name))}
    if not owners:
        return CHECK.skip(subject, "no plugin for CUDA and no device code: it is for the CPU")
    environment = question.inventory.environment
    torch = environment.torch if environment is not None else None
    majors |= {torch.cuda.partition(".")[0]} if torch is not None and torch.cuda else set()
    cuda = max(majors, default="")
    alone = bool(cuda) and all(name.startswith("nvidia-") for name in owners)
    message = f"no jax-cuda plugin is installed: {CPU}"
    message += "; NVIDIA's libraries are here, and nothing that uses them" if alone else ""
    return CHECK.finding(
        subject,
        Status.FAIL if alone else Status.WARN,
        message,
        remedy=f"pip install 'jax[cuda{cuda}]=={there['jax'].version}'" if cuda else "",
        evidence={"device_code_of": tuple(sorted(owners))},
    )


def _faults(parts: Parts, there: Mapping[str, Package], jaxlib: Package) -> Iterator[Finding]:
    for major, halves in sorted(parts.items()):
        wanted = f"jax-cuda{major}-plugin"
        remedy = f"pip install '{wanted}[with-cuda]=={_numbers(jaxlib.version)}'"
        lacking = [f"jax-cuda{major}-{kind}" for kind in ("plugin", "pjrt") if kind not in halves]
        here = " and ".join(f"{p.name} {p.version}" for p in halves.values())
        plugin = halves.get("plugin")
        if lacking:
            message = f"{lacking[0]} is not installed: {CPU}"
            yield CHECK.finding(here, Status.FAIL, message, remedy=remedy)
        elif plugin is not None and _refused(jaxlib, plugin):
            message = f"jaxlib {jaxlib.version} does not use it, but a plugin of its own release: "
            message += "what it brings (linear algebra, random numbers, Pallas) ends on the card"
            yield CHECK.finding(here, Status.FAIL, message, remedy=remedy)
    if len(parts) > 1:
        names = sorted(p.name for halves in parts.values() for p in halves.values())
        drop = [name for name in names if f"cuda{max(parts)}" not in name]
        yield CHECK.finding(
            ", ".join(names),
            Status.WARN,
            "JAX registers one of them, which changes from start to start, and the other ends with "
            "ALREADY_EXISTS",
            remedy=f"pip uninstall -y {' '.join(drop)}",
            evidence={"jax": there["jax"].version},
        )


def _refused(jaxlib: Package, plugin: Package) -> bool:
    same = release(jaxlib.version) == release(plugin.version)
    return not same and release(jaxlib.version) >= _COMPARES


def _numbers(version: str) -> str:
    return ".".join(map(str, release(version)))


def _libraries(parts: Parts, installed: Installed, question: Question) -> Iterator[Finding]:
    for plugin in (halves["plugin"] for halves in parts.values() if "plugin" in halves):
        remedy = f"pip install '{plugin.name}[with-cuda]=={plugin.version}'"
        for fault in jax_libraries.faults(plugin, installed, question):
            subject = f"{plugin.name} {plugin.version}"
            yield CHECK.finding(subject, fault.status, fault.message, remedy=remedy)


CHECK = Check(
    id="jax-has-its-cuda-plugin",
    claim="JAX has a CUDA plugin that it takes, and the libraries that this one loads.",
    how=(
        "Compares jaxlib with jax-cuda12 and jax-cuda13: plugin and pjrt must both be there, the plugin "
        "in the release of jaxlib (0.5.3 and newer do not use another). The libraries that it asks for "
        "when it starts must be found by the loader, with all that they need, in packages or in the "
        "system, with a cuDNN not older than its own: else JAX writes so into its log, and goes on with "
        "the CPU (class I2). Without ptxas and libdevice, of a package or of a toolkit, nothing compiles. Without any "
        "plugin it warns; it fails where NVIDIA's libraries are here and nothing else uses them. Two "
        "plugins warn: one of them is registered, at random. A JAX for the CPU is left alone. "
        "JAX_PLATFORMS and JAX_PLATFORM_NAME that keep JAX from the card warn, and fail where they ask "
        "for one without a plugin."
    ),
    classes=("D1", "I2"),
    remedy="Install plugin, pjrt and libraries in one command: pip install 'jax[cuda13]'.",
    run=_run,
)
