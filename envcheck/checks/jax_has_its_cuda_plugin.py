"""JAX has a CUDA plugin that it takes, with the libraries that it asks for before it does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envcheck.checks import pins
from envcheck.checks.check import Check, Question
from envcheck.checks.remedies import owner
from envcheck.core.enforced import cudnn_is_refused
from envcheck.core.installed import Installed, Package
from envcheck.core.jit_needs import release
from envcheck.core.model import Finding, Status

# What JAX takes and asks for. Source: jax 0.10.2, jax_plugins/xla_cuda13/__init__.py (`initialize`,
# `_check_cuda_versions`) and jax/_src/xla_bridge.py (`discover_pjrt_plugins`, which logs what a plugin
# raises and goes on with the CPU); jaxlib/plugin_support.py (`check_plugin_version`) of jaxlib 0.5.3
# to 0.10.2, which 0.5.0 does not have. Each case was tried with the wheels of 0.10.2.
_HALF = re.compile(r"jax-cuda(?P<major>\d+)-(?P<kind>plugin|pjrt)")
_COMPARES = (0, 5, 3)
_ASKED_FOR = re.compile(
    r"nvidia-(?:cuda-runtime|cudnn|cufft|cuda-cupti|cublas|cusparse)(?:-cu\d+)?"
)
_CPU = "JAX runs on the CPU, and says so in its log alone"

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
    else:
        found = list(_faults(parts, there, jaxlib)) or list(
            _libraries(parts, environment.installed)
        )
        yield from found
        if not found:
            names = " and ".join(
                f"{p.name} {p.version}" for one in parts.values() for p in one.values()
            )
            yield CHECK.finding(f"jaxlib {jaxlib.version}", Status.PASS, f"takes {names}")


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
    message = f"no jax-cuda plugin is installed: {_CPU}"
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
            message = f"{lacking[0]} is not installed: {_CPU}"
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


def _libraries(parts: Parts, installed: Installed) -> Iterator[Finding]:
    """Hold the libraries that JAX loads before it takes its plugin against what that asks for."""
    there = {name: same[0].version for name, same in pins.active(installed).items()}
    for plugin in (halves["plugin"] for halves in parts.values() if "plugin" in halves):
        asked = [pins.applying(line, installed, extra="with-cuda") for line in plugin.with_cuda]
        every = [one for one in asked if one is not None and _ASKED_FOR.fullmatch(one.name)]
        subject = f"{plugin.name} {plugin.version}"
        remedy = f"pip install '{plugin.name}[with-cuda]=={plugin.version}'"
        lacking = [one.name for one in every if one.name not in there]
        if every and len(lacking) == len(every):
            message = "none of the libraries of CUDA that it loads is a package here: they are to "
            message += "come from the system, which was not looked at"
            yield CHECK.finding(subject, Status.WARN, message, remedy=remedy)
        elif lacking:
            message = f"{', '.join(lacking)} not installed, which it loads first: {_CPU}"
            yield CHECK.finding(subject, Status.FAIL, message, remedy=remedy)
        for one in every:
            have = there.get(one.name)
            if have is not None and not pins.fits(one, have):
                # The least release that it takes is the one that it was built with.
                least = next((s.version for s in one.specifier if s.operator == ">="), "")
                ends = "cudnn" in one.name and cudnn_is_refused(least, have)
                message = f"wants {one.name}{one.specifier}, but {have} is installed"
                message += ": XLA refuses a cuDNN older than its own" if ends else ""
                yield CHECK.finding(
                    subject, Status.FAIL if ends else Status.WARN, message, remedy=remedy
                )


CHECK = Check(
    id="jax-has-its-cuda-plugin",
    claim="JAX has a CUDA plugin that it takes, and the libraries that this one loads.",
    how=(
        "Compares jaxlib with jax-cuda12 and jax-cuda13: plugin and pjrt must both be there, the plugin "
        "in the release of jaxlib (0.5.3 and newer do not use another), and so must the libraries of "
        "its extra with-cuda that it loads when it starts, with a cuDNN not older than its own. What "
        "is wrong with them JAX writes into its log, and goes on with the CPU (class I2). Without any "
        "plugin it warns; it fails where NVIDIA's libraries are here and nothing else uses them. Two "
        "plugins warn: one of them is registered, at random. A JAX for the CPU is left alone."
    ),
    classes=("D1", "I2"),
    remedy="Install plugin, pjrt and libraries in one command: pip install 'jax[cuda13]'.",
    run=_run,
)
