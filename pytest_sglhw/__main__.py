"""``python -m pytest_sglhw`` is the ``sglhw`` command."""

from pytest_sglhw.cli import main

raise SystemExit(main())
