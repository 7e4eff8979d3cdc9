"""Run a cell in a child process: a crash or a hang of a kernel is one failed cell, with its signal and its example.

Children come from a fork server that has imported torch and the matrix and has never touched a device, so one costs
milliseconds and may create a device context of its own. The child announces each example before it runs.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

from pytest_sglhw.asking.processes import signal_name
from pytest_sglhw.conformance.failures import CellError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from pytest_sglhw.conformance.family import Law
    from pytest_sglhw.conformance.runner import CellRun

#: Seconds that the child may take to start, and each example after that.
START_SECONDS = EXAMPLE_SECONDS = 120.0

_PRELOAD = [
    "torch",
    "pytest_sglhw.conformance.isolation",
    "pytest_sglhw.conformance.runner",
    "pytest_sglhw.conformance.warm",
]


class KernelCrashError(Exception):
    """A kernel ended the process, or never came back."""


def run_in_child(run: CellRun, target: str, limit: float | None = None) -> None:
    """Run all examples of ``run`` in a child process and take over its tally.

    :param target: module path or ``module:attribute`` of the provider, which the child imports.
    :param limit: seconds that each example may take (default: :data:`EXAMPLE_SECONDS`).
    :raises CellError: as :meth:`CellRun.run`, or that the kernel crashed or hung, with the example that did it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    parent, child = context.Pipe()
    job = (
        target,
        run.bench.provider_name,
        tuple(run.bench.cell),
        str(run.bench.place.device),
        run.effort,
        run.run_seed,
        run.only,
    )
    process = context.Process(target=_serve, args=(child, job), daemon=True)
    process.start()
    child.close()
    try:
        _listen(run, parent, process, limit or EXAMPLE_SECONDS)
    finally:
        process.kill()
        process.join()


def _listen(run: CellRun, connection: Connection, process: BaseProcess, limit: float) -> None:
    law, case, seconds = None, None, max(START_SECONDS, limit)
    while True:
        if not connection.poll(seconds):
            crash = KernelCrashError(f"the kernel did not return within {seconds:g} s; its process was ended")
            raise CellError(run.bench, _law(run, law), case, crash, 0)
        try:
            word, *values = connection.recv()
        except EOFError:
            process.join()
            raise CellError(run.bench, _law(run, law), case, KernelCrashError(_death(process.exitcode)), 0) from None
        seconds = limit
        if word in ("example", "smaller"):
            law, case = values
            run.tally.examples += word == "example"
        elif word == "failed":
            law, case, error, steps = values
            raise CellError(run.bench, _law(run, law), case, error, steps)
        else:
            run.tally, run.bench.calls = values
            return


def _law(run: CellRun, name: str | None) -> Law | None:
    return next((law for law in run.bench.kernel.laws if law.name == name), None)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the kernel crashed its process with {signal_name(-code)}"
    return f"the kernel ended its process with exit status {code}"


def _serve(connection: Connection, job: tuple[Any, ...]) -> None:
    """Run the cell in the child: announce, run, report."""
    import torch

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.kernels import all_kernels
    from pytest_sglhw.conformance.providers import resolve
    from pytest_sglhw.conformance.runner import CellRun

    target, name, cell, device, effort, run_seed, only = job
    torch.set_num_threads(1)
    where = Cell(*cell)
    bench = Bench(all_kernels()[where.kernel], where, resolve(target).kernels, Place(device), name)
    run = CellRun(bench, effort, run_seed, only)
    run.announce = lambda law, case, word: connection.send((word, law.name if law else None, case))
    try:
        connection.send(("done", run.run(), bench.calls))
    except CellError as error:
        connection.send(
            ("failed", error.law.name if error.law else None, error.case, _portable(error.error), error.steps)
        )


def _portable(error: BaseException) -> BaseException:
    """The error itself where it survives the way between processes, else one with its words."""
    import pickle

    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - a foreign class may fail in any way; its words are kept
        return RuntimeError(f"{type(error).__name__}: {error}")
