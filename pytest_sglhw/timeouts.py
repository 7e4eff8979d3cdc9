"""Which deadlines the stages of a probe may have."""

from __future__ import annotations

#: Seconds for one stage, where nobody says others.
TIMEOUT = 60.0

#: In seconds. In less no child says anything; the alarm that ends one nobody waits for overflows somewhere above a day.
SHORTEST, LONGEST = 0.001, 86400

VALID = f"a number of seconds from {SHORTEST} to {LONGEST} (a day)"


def is_timeout(value: object) -> bool:
    """Say whether ``value`` is one: a number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and SHORTEST <= value <= LONGEST


def timeout_of(text: str) -> float | None:
    """Return the seconds that a user wrote; ``None`` where they are no valid timeout."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if is_timeout(seconds) else None
