"""``min_free_memory`` in a run, on a fake that says what is free."""

from __future__ import annotations

import json

import pytest

GIB = 2**30


@pytest.fixture
def machine(pytester):
    """A fake in a file: devices with so many bytes free each (``None``: not said)."""

    def write(*free, memory=80 * GIB):
        devices = [{"index": i, "memory": memory, "free_memory": size} for i, size in enumerate(free)]
        record = {"schema": "1.0", "platform": "cuda", "device_type": "cuda", "devices": devices, "capabilities": {}}
        path = pytester.path / "machine.json"
        path.write_text(json.dumps(record))
        return str(path)

    return write


SUITE = """
    from pytest_sglhw import cuda_only, sglhw

    @sglhw(min_free_memory="8GiB")
    def test_one():
        pass

    @cuda_only
    @sglhw(min_free_memory="8GiB", min_devices=2)
    def test_two():
        pass

    @sglhw(min_free_memory="8GiB", min_devices=2, otherwise="raise", raises=MemoryError)
    def test_raises():
        raise MemoryError("out of memory")
"""


def test_each_device_that_a_test_takes_needs_so_much(run, machine, outcomes):
    """What one device lacks skips the test that takes it, or lets it end in the documented error."""
    result = run(SUITE, "-v", "-rs", fake=machine(8 * GIB, 2 * GIB))
    assert outcomes(result) == {"test_one": "PASSED", "test_two": "SKIPPED", "test_raises": "RAISED"}
    result.stdout.fnmatch_lines(
        [
            (
                "    1  memory: sglhw(min_free_memory='8GiB', min_devices=2): 8 GiB of free memory needed, "
                "device 1 has 2 GiB of 80 GiB free"
            ),
            (
                "*would run with: a device with 8 GiB free: end what else holds memory on it (other processes, "
                "other workers)"
            ),
        ]
    )


def test_a_fake_that_does_not_say_it_is_not_enough(run, machine, outcomes):
    """What is not known does not hold."""
    result = run(SUITE, "-v", "-rs", fake=machine(None, None))
    assert outcomes(result) == {"test_one": "SKIPPED", "test_two": "SKIPPED", "test_raises": "RAISED"}
    result.stdout.fnmatch_lines(["*8 GiB of free memory needed, device 0 has an unknown amount free"])


def test_a_size_that_means_nothing_is_a_collection_error(run):
    """As for min_memory."""
    result = run(
        """
        from pytest_sglhw import sglhw

        @sglhw(min_free_memory="8 gigs")
        def test_it():
            pass
        """
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            (
                "*sglhw(min_free_memory='8 gigs'): '8 gigs' is not a valid min_free_memory. Valid: bytes, or a number "
                "with a unit, such as '40GiB' (units: *"
            )
        ]
    )


def test_the_plan_leaves_it_open(run, pytester, machine):
    """No lane promises what will be free; a machine that says it settles it."""
    pytester.makefile(".toml", sglhw='[lanes.cuda]\nplatform = "cuda"\nmin_devices = 2')
    result = run(
        SUITE, "--sglhw-plan-format", "json", "--sglhw-plan-for", "cuda", "--sglhw-plan-for",
        machine(8 * GIB, 2 * GIB),
    )  # fmt: skip
    words = [list(test["lanes"].values()) for test in json.loads(result.stdout.str())["tests"]]
    assert words == [["not promised", "run"], ["not promised", "skip"], ["not promised", "raise"]]
