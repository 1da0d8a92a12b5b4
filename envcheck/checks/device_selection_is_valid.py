"""The variables that choose cards choose some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envcheck.checks.check import Check, Question
from envcheck.core.device_selection import Selection, cuda_visible, nvidia_visible
from envcheck.core.model import Domain, Environment, Finding, Status

_ORDERS = ("FASTEST_FIRST", "PCI_BUS_ID")


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.variables is None:
        yield CHECK.skip("variables", "no environment was looked at")
        return
    found = [
        *_cuda(environment.variables, environment),
        *_order(environment.variables),
        *_nvidia(environment),
    ]
    yield from found
    if not found:
        yield CHECK.skip("variables", "none of the variables that choose cards is set")


def _cuda(variables: Mapping[str, str], environment: Environment) -> Iterator[Finding]:
    name = "CUDA_VISIBLE_DEVICES"
    if name not in variables:
        return
    chosen = cuda_visible(variables[name])
    # A machine without a driver has no card to hide: there the variable is mostly set so that
    # nothing looks for one, and the job's own environment is another.
    here = environment.driver is not None
    remedy = f"unset {name}, or set it to an index or a UUID that nvidia-smi -L lists"
    yield _of(name, variables[name], chosen, Status.FAIL if here else Status.WARN, remedy)


def _of(name: str, value: str, chosen: Selection, hidden: Status, remedy: str) -> Finding:
    subject = f"{name}={value[:80]}"
    evidence = {"form": chosen.form, "shown": chosen.shown, "problems": chosen.problems}
    if chosen.hides_all:
        message = next(iter(chosen.problems), "no card is visible")
        return CHECK.finding(subject, hidden, message, remedy=remedy, domain=Domain.JOB,
                             evidence=evidence)  # fmt: skip
    if chosen.problems:
        return CHECK.finding(subject, Status.WARN, "; ".join(chosen.problems), remedy=remedy,
                             domain=Domain.JOB, evidence=evidence)  # fmt: skip
    message = "every card" if chosen.shown is None else f"{len(chosen.shown)} by {chosen.form}"
    if chosen.form in ("uuid", "mig"):
        message += "; a library that reads the variable itself may take numbers alone"
    return CHECK.finding(subject, Status.PASS, message, domain=Domain.JOB, evidence=evidence)


def _order(variables: Mapping[str, str]) -> Iterator[Finding]:
    name = "CUDA_DEVICE_ORDER"
    if name not in variables:
        return
    value = variables[name]
    subject = f"{name}={value[:80]}"
    if value in _ORDERS:
        yield CHECK.finding(subject, Status.PASS, "one of the two orders", domain=Domain.JOB)
    else:
        message = f"not one of {' and '.join(_ORDERS)}: CUDA keeps its own order"
        yield CHECK.finding(subject, Status.WARN, message, domain=Domain.JOB,
                            remedy=f"export {name}=PCI_BUS_ID")  # fmt: skip


def _nvidia(environment: Environment) -> Iterator[Finding]:
    """Judge the image's own value: a container's is set by who starts it."""
    image, name = environment.image, "NVIDIA_VISIBLE_DEVICES"
    if image is None or name not in image.variables:
        return
    chosen = nvidia_visible(image.variables[name])
    remedy = f"ENV {name}=all in the image, or --gpus all when it is started"
    yield _of(name, image.variables[name], chosen, Status.WARN, remedy)


CHECK = Check(
    id="device-selection-is-valid",
    claim="The variables that choose cards have a valid form and leave some card visible.",
    how=(
        "Reads CUDA_VISIBLE_DEVICES by the driver's documented rules: indices, UUIDs in full or "
        "cut short, MIG devices; an invalid entry ends the list, one that is named twice hides "
        "every card, and so does an empty value. Where a driver is, a value that hides every card "
        "fails; elsewhere it warns. CUDA_DEVICE_ORDER must be one of its two words. Of an image, "
        "NVIDIA_VISIBLE_DEVICES is read by the container runtime's rules. Class F4. Whether "
        "the cards that are named exist is only known on the machine."
    ),
    classes=("F4",),
    remedy="Unset the variable, or give it what `nvidia-smi -L` lists.",
    run=_run,
)
