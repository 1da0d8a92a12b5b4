"""What every check is: a claim that can be false, and a pure function that tests it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from envcheck.core.compiled import Compiled
from envcheck.core.cuda import Version
from envcheck.core.executed import Executed
from envcheck.core.limits import Limits
from envcheck.core.machine import Machine
from envcheck.core.model import Assurance, Domain, Finding, Inventory, Json, Status, Target
from envcheck.core.roles import Role, roles
from envcheck.core.sm import Sm


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a check is asked: does this inventory work on this card with this driver.

    Without slots, so that what several checks need is worked out once, by the first of them.
    """

    target: Target
    sm: Sm
    driver: Version | None
    """None when no driver was named: then the least that would do is part of the answer."""
    inventory: Inventory

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The role of every file with device code, by path."""
        return roles(self.inventory, self.sm, self.driver)

    @property
    def compiled(self) -> Compiled | None:
        """What was compiled for this very SM: evidence for another one counts for nothing."""
        compiled = self.inventory.compiled
        return compiled if compiled is not None and compiled.target == str(self.sm) else None

    @property
    def executed(self) -> Executed | None:
        """What ran on a card of this very SM."""
        executed = self.inventory.executed
        if executed is None or executed.card is None or executed.card.sm != str(self.sm):
            return None
        return executed

    @property
    def machine(self) -> Machine | None:
        """The machine around the card, where somebody asked for that."""
        return self.inventory.machine

    def limits_of(self, name: str) -> Limits | None:
        """Return the maker's numbers for a card of that name; None where none are known.

        Those of a product that was named as the target may be of another card than the one here.
        """
        expected = self.machine.asked.expected if self.machine is not None else None
        if expected is not None and name in expected.reported:
            return expected.limits
        return self.target.limits if name == self.target.card else None

    def why_not_looked(self, part: str) -> str:
        """Why there is no such part of the machine to look at; `part` is a field's name.

        That of a part of the host is `host.disk`.
        """
        if self.machine is None:
            return "the machine was not looked at: `envcheck preflight` does that"
        name, _, inner = part.partition(".")
        if inner and self.machine.host is not None:
            return self.machine.host.unread.get(inner, "that could not be read")
        failed = self.machine.failed.get(name)
        return failed or self.machine.left.get(name, "that was not looked at")

    @property
    def why_not_executed(self) -> str:
        """Why there is nothing that ran to look at."""
        other = self.inventory.executed
        if other is None:
            return (
                "nothing was run: `envcheck check --arch native` does that on a GPU machine"
                " (in an image, with --gpus all)"
            )
        if other.card is None:
            return f"nothing could be run: {other.message or other.outcome.status}"
        return f"run on {other.card.name} ({other.card.sm}), which says nothing about {self.sm}"

    @property
    def why_not_compiled(self) -> str:
        """Why there is nothing compiled to look at."""
        other = self.inventory.compiled
        if other is None:
            return "nothing was compiled: `envcheck build` does that"
        return f"compiled for {other.target}, which says nothing about {self.sm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. `id` is the claim in kebab case; its file is the same in snake case."""

    id: str
    claim: str
    how: str
    """How it looks, in a few sentences, for `envcheck explain`."""
    remedy: str
    """What to do when it fails, in general; findings carry the exact command."""
    classes: tuple[str, ...] = ()
    """The failure classes that it finds, by their ids in `core.failure_classes`."""
    required: bool = False
    """True when a report in which it found nothing to look at is inconclusive."""
    assurance: Assurance = Assurance.SCANNED
    """The assurance that a report cannot have unless this check found no fault in something."""
    runs: tuple[str, ...] = ()
    """Parts of `core.request.PARTS` that must run on a card for it."""
    run: Callable[[Question], Iterable[Finding]]

    def finding(
        self,
        subject: str,
        status: Status,
        message: str,
        *,
        remedy: str = "",
        domain: Domain = Domain.PACKAGE,
        required: bool = True,
        evidence: Mapping[str, Json] | None = None,
    ) -> Finding:
        """Make a finding of this check."""
        return Finding(
            check=self.id,
            subject=subject,
            status=status,
            message=message,
            remedy=remedy,
            domain=domain,
            required=required,
            evidence=evidence or {},
        )

    def skip(self, subject: str, reason: str) -> Finding:
        """Say that there was nothing to look at, and why."""
        return self.finding(subject, Status.SKIP, reason, required=False)
