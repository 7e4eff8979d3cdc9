"""The outcome words: one per test, everywhere the same."""

from __future__ import annotations

#: Every word that a test can end in, in the order in which tables show them.
OUTCOMES = ("passed", "failed", "error", "skipped", "raised", "xfailed", "xpassed", "not_run", "crashed")

#: Outcomes in which the test's own code ran to a verdict: what a lane's ``min_executed`` counts.
EXECUTED = frozenset({"passed", "failed", "raised"})
