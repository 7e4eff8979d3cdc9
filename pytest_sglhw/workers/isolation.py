"""``isolated_device``: run one test in a spawned child process and take its true report back.

The item goes through pytest's own protocol here too, with its ``setup``, ``runtest`` and ``teardown`` replaced, so that
collectors are set up and torn down as for any other test. What the phases report is replaced by the child's reports.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_sglhw.asking.processes import told_end
from pytest_sglhw.environment.detection import SHARED, detection_of
from pytest_sglhw.environment.pinned import PINNED
from pytest_sglhw.errors import PytestSglhwWarning
from pytest_sglhw.gates import ISOLATED
from pytest_sglhw.gates.policy import LANE_POLICY
from pytest_sglhw.gates.reports import add_hint, fail
from pytest_sglhw.gates.vacuity import strictest
from pytest_sglhw.report.nodeids import without_group
from pytest_sglhw.report.results import is_subtest
from pytest_sglhw.workers.isolated_child import IN_CHILD, WARNING, Job

#: Options of the parent that must not reach the child: it runs one test and writes none of its files.
_OWN: dict[str, Any] = {
    "numprocesses": None, "maxprocesses": None, "dist": "no", "tx": [], "px": [], "looponfail": False,
    "sglhw_report": None, "sglhw_plan": None, "sglhw_devices": None, "sglhw_lane": None, "xmlpath": None, "lf": False,
    "failedfirst": False, "newfirst": False, "stepwise": False, "keyword": "", "markexpr": "", "maxfail": 0,
    "usepdb": False, "collectonly": False, "deselect": None, "ignore": None, "ignore_glob": None,
    "cacheclear": False, "no_header": True, "no_summary": True,
}  # fmt: skip


# Not ``-m``: as ``__main__`` the module's stash key would be another one than that of the plugins in the child.
# ``-c`` puts the current folder before all else, where it hides modules that the parent found elsewhere.
_BOOTSTRAP = """\
import sys
sys.path[:] = filter(None, sys.path)
from pytest_sglhw.workers.isolated_child import main
sys.exit(main())
"""


class ChildRun(NamedTuple):
    """What came back from the child: its report of each phase, how it ended, and what it printed (``None``: to us)."""

    reports: dict[str, pytest.TestReport]
    beside: list[pytest.TestReport]
    """Reports beside those of the phases: one for each subtest that has something to say."""
    returncode: int
    output: str | None

    @property
    def end(self) -> str:
        """How the process ended."""
        return told_end(self.returncode)


_RUN = pytest.StashKey[ChildRun]()


class Isolation:
    """Plugin that runs marked tests in a child process of their own."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Put the child in the place of the test."""
        option = item.config.option
        isolated = item.get_closest_marker(ISOLATED) is not None and not item.config.stash.get(IN_CHILD, False)
        if isolated and not option.setupplan:  # a plan runs nothing
            item.setup = lambda: _setup(item)  # type: ignore[method-assign]
            item.runtest = lambda: _call(item)  # type: ignore[method-assign]
            item.teardown = lambda: None  # type: ignore[method-assign]  # there is nothing of its own here
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Replace the report of a phase by the child's."""
        report = yield
        run = item.stash.get(_RUN, None)
        if run is None:
            return report
        return _end_of(item, run, report) if call.when == "teardown" else run.reports.get(call.when, report)


def _end_of(item: pytest.Item, run: ChildRun, ours: pytest.TestReport) -> pytest.TestReport:
    """The report of the last phase: the child's, unless it has none or what is torn down here fails."""
    theirs = run.reports.get("teardown")
    if theirs is None:
        fail(ours, _no_report(item, "teardown", run))
        return ours
    if run.returncode < 0:
        text = f"the child process of {item.nodeid} ended with {run.end} after the test had ended."
        item.warn(PytestSglhwWarning(text))
    if ours.failed and theirs.failed:
        add_hint(theirs, "teardown in the process that started the child", str(ours.longrepr))
    return ours if ours.failed and not theirs.failed else theirs


def _setup(item: pytest.Item) -> None:
    run = item.stash[_RUN] = _run_child(item)
    missing = "setup" if "setup" not in run.reports else "call"
    only_setup = item.config.option.setuponly
    if missing == "setup" or (run.reports["setup"].passed and "call" not in run.reports and not only_setup):
        # Said here and now, so that it is an error of the test and no failure of its code.
        del item.stash[_RUN]
        pytest.fail(_no_report(item, missing, run), pytrace=False)
    _end_phase(item, "setup")


def _call(item: pytest.Item) -> None:
    for report in item.stash[_RUN].beside:
        item.ihook.pytest_runtest_logreport(report=report)
    _end_phase(item, "call")


def _end_phase(item: pytest.Item, phase: str) -> None:
    report = item.stash[_RUN].reports[phase]
    if not report.passed:
        # Only ends the phase here: what is shown is the child's own report.
        pytest.fail(f"{phase} {report.outcome} in the child process", pytrace=False)


def _no_report(item: pytest.Item, phase: str, run: ChildRun) -> str:
    printed = f"It printed:\n{run.output}" if run.output else "It printed nothing."
    if run.output is None:
        printed = "What it printed was not captured."
    return f"the child process of {item.nodeid} ended with {run.end} and no report of the {phase} phase. {printed}"


def _run_child(item: pytest.Item) -> ChildRun:
    with tempfile.TemporaryDirectory(prefix="sglhw-isolated-") as folder:
        lifeline, ours = os.pipe()
        job = _job(item, Path(folder, "reports"), lifeline)
        Path(job.reports).touch()
        file = Path(folder, "job.pickle")
        file.write_bytes(pickle.dumps(job))
        output = Path(folder, "output") if item.config.option.capture != "no" else None
        command = [sys.executable, "-c", _BOOTSTRAP, str(file)]
        try:
            returncode = _spawn(command, output, _environment(item.config), lifeline)
        finally:
            os.close(lifeline)
            os.close(ours)
        phases, beside = _reports(item, Path(job.reports))
        return ChildRun(phases, beside, returncode, _tail(output) if output else None)


def _environment(config: pytest.Config) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if not hasattr(config, "workerinput"):  # a pytest that runs in a test of a pinned worker is none itself
        environment.pop(PINNED, None)
    return environment


def _spawn(command: list[str], output: Path | None, environment: dict[str, str], lifeline: int) -> int:
    with output.open("wb") if output else contextlib.nullcontext() as sink:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
            pass_fds=(lifeline,),
            env=environment,
        )
        try:
            return child.wait()
        except BaseException:
            # An interrupt or a timeout plugin ends the wait: the child must not outlive its test.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise


def _tail(output: Path, size: int = 4000) -> str:
    return output.read_bytes()[-size:].decode(errors="replace").strip()


def _job(item: pytest.Item, reports: Path, lifeline: int) -> Job:
    config = item.config
    nodeid = without_group(item.nodeid, item.location)
    test = "::".join([str(item.path), *nodeid.split("::")[1:]])
    args = [test, "--rootdir", str(config.rootpath)]
    if not config.pluginmanager.hasplugin("cacheprovider"):
        args += ["-p", "no:cacheprovider"]
    args += ["--capture", config.option.capture]  # begins before options can be taken over
    if config.inipath is not None:
        args += ["-c", str(config.inipath)]
    for plugin in getattr(config.option, "plugins", []):
        args += ["-p", plugin]
    # What addopts asked for is in the options already: read again, it would start workers in the child.
    for override in [*(config.option.override_ini or []), "addopts="]:
        args += ["-o", override]
    options = {**_picklable(vars(config.option)), **_OWN, SHARED: detection_of(config).hand_over()}
    del options["file_or_dir"]
    options["basetemp"] = _temporary_folder(config)
    if policy := config.stash.get(LANE_POLICY, None):
        # The child is in no lane, whose promise is not its to judge, but what the lane asks of a test is.
        options["sglhw_vacuous"] = strictest(options["sglhw_vacuous"] or "off", policy.vacuous)
    worker = getattr(config, "workerinput", None)
    worker = worker and {key: worker[key] for key in ("workerid", "testrunuid")}
    return Job(nodeid, args, options, list(sys.path), str(reports), list(sys.argv), worker, lifeline)


def _temporary_folder(config: pytest.Config) -> str | None:
    """A folder for the child's temporary files, where those of this process are and are kept as long."""
    factory = getattr(config, "_tmp_path_factory", None)  # as xdist does for its workers
    return None if factory is None else str(factory.mktemp("isolated"))


def _picklable(options: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in options.items():
        try:
            pickle.dumps(value)
        except (pickle.PicklingError, TypeError, AttributeError):
            continue
        kept[name] = value
    return kept


def _reports(item: pytest.Item, file: Path) -> tuple[dict[str, pytest.TestReport], list[pytest.TestReport]]:
    """The report of each phase, and the others (of subtests) in their order; warnings are passed on."""
    config = item.config
    phases: dict[str, pytest.TestReport] = {}
    beside: list[pytest.TestReport] = []
    with file.open("rb") as stream, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            data = pickle.load(stream)
            if WARNING in data:
                _warn(item, data[WARNING], data["location"])
                continue
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            report.nodeid = item.nodeid  # with the group that xdist adds, which it knows the report by
            if is_subtest(report) or report.when in phases:
                beside.append(report)
            else:
                phases[report.when] = report
    return phases, beside


def _warn(item: pytest.Item, told: tuple[str, str, str, str, int], location: tuple[str, int, str] | None) -> None:
    """Record a warning of the child as one of the test."""
    text, module, name, filename, lineno = told
    # Looked up and not imported: a category of torch must not load torch here.
    category = getattr(sys.modules.get(module), name, None)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category, text = Warning, f"{module}.{name}: {text}"
    message = warnings.WarningMessage(text, category, filename, lineno)
    facts = {"warning_message": message, "when": "runtest", "nodeid": item.nodeid, "location": location}
    item.config.hook.pytest_warning_recorded.call_historic(kwargs=facts)
