"""All smoke tests of extensions, in order of value."""

from __future__ import annotations

from envcheck.guest.smokes.smoke import Smoke

SMOKES: tuple[Smoke, ...] = ()
