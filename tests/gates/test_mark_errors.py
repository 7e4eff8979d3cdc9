"""Every message about a mark that means nothing, compared whole, and where it is shown."""

from __future__ import annotations

import pytest

from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates import CAPABILITIES
from pytest_sglhw.gates.known_gap import read_gap
from pytest_sglhw.gates.marks import MarkReader
from pytest_sglhw.gates.reading import read_isolated
from pytest_sglhw.registry.loading import built_in

READER = MarkReader(built_in())
KERNELS = ", ".join(READER.kernels("kvcacheio"))
ALL = ", ".join(CAPABILITIES)
COMMON = "otherwise, raises, match, reason"
ASKED = "platforms, archs, min_arch, min_devices, min_memory, min_free_memory"
GENERAL = f"{ASKED}, {COMMON}, vacuous_because"
PLATFORMS = "names of platforms: rocm, cuda, npu, musa, xpu, hpu, mps, cpu"
UNITS = "(units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)"
MEMORY = f"bytes, or a number with a unit, such as '40GiB' {UNITS}"
CUDA_ARCH = "an arch of CUDA, such as 'sm90' (elsewhere archs have no order; use archs=)"
ARCHS = "names of archs, such as 'sm90' or 'gfx942'"
CLASSES = "a class of errors or warnings, or a tuple of them"
TEXT = "a text that is not empty"

mark = pytest.mark

WRONG = [
    (mark.cuda_only(otherwize="raise"),
     (f"cuda_only(otherwize='raise'): 'otherwize' is not a keyword of cuda_only. Valid: {COMMON}. "
     "Did you mean 'otherwise'?")),
    (mark.cuda_only(min_devices=2),
     f"cuda_only(min_devices=2): 'min_devices' is not a keyword of cuda_only. Valid: {COMMON}."),
    (mark.requires_kv4(zzz=1),
     f"requires_kv4(zzz=1): 'zzz' is not a keyword of requires_kv4. Valid: {COMMON}, vacuous_because."),
    (mark.sglhw("kv4", arch="sm90"),
     f"sglhw('kv4', arch='sm90'): 'arch' is not a keyword of sglhw. Valid: {GENERAL}. Did you mean 'archs'?"),
    (mark.cuda_only("sm90"),
     f"cuda_only('sm90'): cuda_only takes keywords only, but was given 1 argument. Valid: {COMMON}."),
    (mark.requires_kv4("a", "b"),
     f"requires_kv4('a', 'b'): requires_kv4 takes keywords only, but was given 2 arguments. Valid: {COMMON}."),
    (mark.requires_kvcacheio("transfer_kv_direkt"),
     (f"requires_kvcacheio('transfer_kv_direkt'): 'transfer_kv_direkt' is not a known kernel. Valid: {KERNELS}. "
     "Did you mean 'transfer_kv_direct'?")),
    (mark.requires_kvcacheio(3), f"requires_kvcacheio(3): 3 is not a known kernel. Valid: {KERNELS}."),
    (mark.sglhw("kvcache"),
     f"sglhw('kvcache'): 'kvcache' is not a known capability. Valid: {ALL}. Did you mean 'kvcacheio'?"),
    (mark.sglhw, f"sglhw asks for nothing. Valid: capabilities, {ASKED}."),
    (mark.sglhw(reason="x"),
     f"sglhw(reason='x') asks for nothing. Valid: capabilities, {ASKED}."),
    (mark.sglhw(platforms="tpu"), f"sglhw(platforms='tpu'): 'tpu' is not a valid platforms. Valid: {PLATFORMS}."),
    (mark.sglhw(platforms=3), f"sglhw(platforms=3): 3 is not a valid platforms. Valid: {PLATFORMS}."),
    (mark.sglhw(archs=("sm90", 9.0)),
     f"sglhw(archs=('sm90', 9.0)): ('sm90', 9.0) is not a valid archs. Valid: {ARCHS}."),
    (mark.sglhw(min_arch="gfx942"), f"sglhw(min_arch='gfx942'): 'gfx942' is not a valid min_arch. Valid: {CUDA_ARCH}."),
    (mark.sglhw(min_devices=0),
     "sglhw(min_devices=0): 0 is not a valid min_devices. Valid: a whole number of at least 1."),
    (mark.sglhw(min_devices=True),
     "sglhw(min_devices=True): True is not a valid min_devices. Valid: a whole number of at least 1."),
    (mark.sglhw(min_memory="40 gigs"),
     f"sglhw(min_memory='40 gigs'): '40 gigs' is not a valid min_memory. Valid: {MEMORY}."),
    (mark.sglhw(min_memory=-1), f"sglhw(min_memory=-1): -1 is not a valid min_memory. Valid: {MEMORY}."),
    (mark.cuda_only(otherwise="fail"),
     "cuda_only(otherwise='fail'): 'fail' is not a valid otherwise. Valid: 'skip' or 'raise'."),
    (mark.cuda_only(otherwise="raise", raises="RuntimeError"),
     f"cuda_only(otherwise='raise', raises='RuntimeError'): 'RuntimeError' is not a valid raises. Valid: {CLASSES}."),
    (mark.cuda_only(otherwise="raise", raises=RuntimeError, match="("),
     ("cuda_only(otherwise='raise', raises=RuntimeError, match='('): '(' is not a valid match. "
     "Valid: a regular expression (missing ), unterminated subpattern at position 0).")),
    (mark.cuda_only(reason=" "), f"cuda_only(reason=' '): ' ' is not a valid reason. Valid: {TEXT}."),
    (mark.cuda_only(raises=RuntimeError),
     "cuda_only(raises=RuntimeError): raises and match say what otherwise='raise' expects. Add it or drop them."),
    (mark.cuda_only(otherwise="raise"),
     "cuda_only(otherwise='raise'): otherwise='raise' needs raises=, the class that is documented to be raised."),
    (mark.requires_gguf(otherwise="raise"),
     "requires_gguf(otherwise='raise'): gguf only warns, so otherwise='raise' needs raises=, which may be a warning."),
    (mark.requires_kvcacheio_npu(otherwise="raise"),
     ("requires_kvcacheio_npu(otherwise='raise'): kvcacheio_npu has no documented error, so otherwise='raise' needs "
     "raises=, which may be a warning.")),
    (mark.requires_kv4(vacuous_because=1),
     f"requires_kv4(vacuous_because=1): 1 is not a valid vacuous_because. Valid: {TEXT}."),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "text"), WRONG, ids=[text.partition(":")[0] for _, text in WRONG])
def test_a_wrong_mark_is_told_what_is_valid(wrong, text):
    """The message says what was given, what is valid, and the likely meaning."""
    with pytest.raises(MarkError) as caught:
        READER.need(wrong.mark)
    assert str(caught.value) == text


UNTIL = "a date such as '2027-01-31', or an SGLang version such as '0.5.30'"
WRONG_GAPS = [
    (mark.known_gap("x"), "known_gap('x'): known_gap takes keywords only. Valid: issue, until, raises, reason."),
    (mark.known_gap(isue="x"),
     ("known_gap(isue='x'): 'isue' is not a keyword of known_gap. Valid: issue, until, raises, reason. "
     "Did you mean 'issue'?")),
    (mark.known_gap(until="soon"), f"known_gap(until='soon'): 'soon' is not a valid until. Valid: {UNTIL}."),
    (mark.known_gap(raises=3), f"known_gap(raises=3): 3 is not a valid raises. Valid: {CLASSES}."),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "text"), WRONG_GAPS)
def test_a_wrong_known_gap_is_told_what_is_valid(wrong, text):
    """``known_gap`` is as strict as the other marks."""
    with pytest.raises(MarkError) as caught:
        read_gap(wrong.mark)
    assert str(caught.value) == text


def test_isolated_device_takes_nothing():
    """The mark has no arguments."""
    with pytest.raises(MarkError) as caught:
        read_isolated(mark.isolated_device(timeout=3).mark)
    assert (
        str(caught.value) == "isolated_device(timeout=3): isolated_device takes no arguments. Write: @isolated_device"
    )


def yours(name):
    return f"If {name!r} is a mark of your own, register it in the ini value 'markers'."


SLIP = (
    f"requires_kvcachio is not a mark of pytest-sglhw. Did you mean 'requires_kvcacheio'? {yours('requires_kvcachio')}"
)
SLIPPED = "import pytest\n@pytest.mark.requires_kvcachio\ndef test_a(): pass"


def test_a_near_miss_is_a_collection_error(run):
    """A name that can only be meant as one of ours fails its file: exit status 2, nothing runs."""
    result = run(SLIPPED, test_other="def test_b(): pass")
    assert f"test_it.py::test_a: {SLIP}" in result.outlines
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1, warnings=1)


def test_under_workers_the_rest_runs(run):
    """With workers the file fails, once, and the other files run: exit status 1."""
    result = run(SLIPPED, "-n2", test_other="def test_b(): pass")
    assert result.outlines.count(f"test_it.py::test_a: {SLIP}") == 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["passed"] == 1
    assert result.parseoutcomes()["errors" if "errors" in result.parseoutcomes() else "error"] == 1


@pytest.mark.parametrize(
    "arguments", [["--strict-markers"], ["-W", "error"], ["--strict-markers", "-n1"]], ids=" ".join
)
def test_where_pytest_speaks_first_the_hint_is_added(run, arguments):
    """With strict markers, or warnings as errors, pytest refuses the name itself; our hint stands below."""
    assert SLIP in run(SLIPPED, *arguments).outlines


def test_all_mistakes_of_a_file_are_shown_at_once(run):
    """One run shows every mistake of a file; the same mistake in many tests is shown once."""
    source = """
        import pytest
        @pytest.mark.cuda_only("x")
        @pytest.mark.parametrize("n", range(3))
        def test_a(n): pass
        class TestB:
            @pytest.mark.sglhw(min_devices=0)
            def test_b(self): pass
        @pytest.mark.sglhw(archs=3)
        def test_c(): pass
    """
    result = run(source)
    text = f"cuda_only('x'): cuda_only takes keywords only, but was given 1 argument. Valid: {COMMON}."
    assert f"test_it.py::test_a[0]: {text}" in result.outlines
    assert f"test_it.py::test_c: sglhw(archs=3): 3 is not a valid archs. Valid: {ARCHS}." in result.outlines
    assert not any("test_a[1]" in line for line in result.outlines)


def test_a_mark_of_a_class_is_refused_with_its_class(run):
    """A mistake inside a class, or on a TestCase, is a collection error too."""
    source = """
        import pytest, unittest
        @pytest.mark.cuda_only("x")
        class TestA(unittest.TestCase):
            @pytest.mark.sglhw(min_devices=0)
            def test_a(self): pass
    """
    result = run(source)
    text = "sglhw(min_devices=0): 0 is not a valid min_devices. Valid: a whole number of at least 1."
    assert f"test_it.py::TestA::test_a: {text}" in result.outlines
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_an_unknown_capability_of_ours_lists_the_known(run):
    """A name that was imported from this package is ours, however far it is from any capability."""
    result = run("from pytest_sglhw import requires_telepathy\n@requires_telepathy\ndef test_a(): pass")
    text = f"requires_telepathy: 'telepathy' is not a known capability. Valid: {ALL}. {yours('requires_telepathy')}"
    assert f"test_it.py::test_a: {text}" in result.outlines


def test_a_version_string_as_condition_is_refused(run):
    """``skipif(torch.version.hip)`` hands pytest a string to evaluate: the file, the mark and the value are named."""
    result = run("import pytest\nhip = '6.4.1'\n@pytest.mark.skipif(hip, reason='no hip')\ndef test_a(): pass")
    text = (
        "test_it.py::test_a: skipif('6.4.1', reason='no hip'): the condition is the version string '6.4.1', "
        "which pytest would evaluate as Python code. Compare the version, or ask for the platform with a mark such as "
        "rocm_only."
    )
    assert text in result.outlines
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("condition", ["6", " 6.4", "6.4.43482-0f2d60242", "2.13.0+cpu"])
def test_version_strings_of_every_shape_are_refused(run, condition):
    """Hash suffixes, local versions and bare numbers are versions."""
    run(f"import pytest\n@pytest.mark.skipif({condition!r}, reason='x')\ndef test_a(): pass").assert_outcomes(errors=1)


@pytest.mark.parametrize("condition", ["1", "0", "sys.version_info > (3, 4)", "True"])
def test_other_string_conditions_are_left_alone(run, condition):
    """A condition that is code, or a plain truth value, is pytest's business."""
    result = run(f"import pytest\n@pytest.mark.skipif({condition!r}, reason='x')\ndef test_a(): pass")
    assert result.ret == pytest.ExitCode.OK
