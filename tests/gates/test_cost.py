"""What marked tests leave behind: counted, since no test compares times."""

from __future__ import annotations

import sys

SKIPS = """
import pytest
@pytest.mark.parametrize("number", range(20))
@pytest.mark.cuda_only
def test_it(number): raise AssertionError
"""
COUNTED = """
import gc
def pytest_configure():
    gc.disable()
def pytest_unconfigure():
    print("left:", sum(type(found).__name__ == "GateSkip" for found in gc.get_objects()))
"""
ONCE = """
import sys, pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", "--strict-markers", *sys.argv[1:]]) == 0
print("left:", sorted(name for name in vars(pytest.mark) if name[0] != "_"))
"""


def test_a_skip_leaves_no_circle_behind(pytester):
    """Each would keep 50 objects until the garbage collector comes by, which then has to come twice as often."""
    pytester.makeconftest(COUNTED)
    pytester.makepyfile(SKIPS)
    result = pytester.runpytest_subprocess("-p", "sglhw", "-s", "--sglhw-fake", "rocm")

    result.assert_outcomes(skipped=20)
    result.stdout.fnmatch_lines(["left: 0"])


def test_a_plain_mark_is_made_once_and_for_this_run_alone(pytester):
    """Tests share it as if it had been named once; a later run in this process finds pytest as it was."""
    plain = pytester.makepyfile(
        test_plain="""
        import pytest
        assert pytest.mark.cpu_only.mark is pytest.mark.cpu_only.mark
        assert pytest.mark.requires_kv4.mark is pytest.mark.requires_kv4.mark
        assert pytest.mark.cpu_only(reason="x").mark.kwargs == {"reason": "x"} and not pytest.mark.cpu_only.kwargs

        @pytest.mark.cpu_only
        def test_a(request): assert [mark.name for mark in request.node.own_markers] == ["cpu_only"]
        """
    )
    result = pytester.run(sys.executable, "-c", ONCE, "-p", "sglhw", "--sglhw-fake", "cpu", str(plain))

    assert result.ret == 0
    result.stdout.fnmatch_lines(["left: []"])
