"""The mark of a gate: a platform that opens it, and what SGLang says everywhere else."""

from __future__ import annotations

import os
import re

import pytest

WRONG_TEXT = "SGLang says nothing of the kind"


def refuses(exception: type[BaseException], text: str, *platforms: str) -> pytest.MarkDecorator:
    """Require one of ``platforms``; elsewhere the test must end in ``exception`` with ``text`` in its message.

    With ``SGLHW_WRONG_TEXT=1`` another text is demanded, which no gate must satisfy.
    """
    match = WRONG_TEXT if os.environ.get("SGLHW_WRONG_TEXT") == "1" else re.escape(text)
    return pytest.mark.sglhw(platforms=platforms, otherwise="raise", raises=exception, match=match)
