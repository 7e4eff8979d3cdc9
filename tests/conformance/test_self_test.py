"""Planted faults and the self-test: what is killed, what survives, what is said, and the exit status."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.cli import main  # noqa: E402
from pytest_sglhw.conformance import self_test  # noqa: E402
from pytest_sglhw.conformance.checks import laws_of  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.mutants import MUTANTS  # noqa: E402
from pytest_sglhw.conformance.mutants.planting import Mutant, changing, plant_in  # noqa: E402
from pytest_sglhw.conformance.runner import Effort  # noqa: E402

KERNEL = "transfer_kv_per_layer_mla"
NO_FAULT = Mutant("no fault", (KERNEL,), ("reference",), "nothing is wrong", changing())


def _id(mutant):
    return f"{mutant.name} in {mutant.kernels[0]}"


def test_there_are_faults_enough_and_each_is_planted_once():
    """At least 60, no two of one name in one kernel."""
    places = [(mutant.name, kernel) for mutant in MUTANTS for kernel in mutant.kernels]

    assert len(MUTANTS) >= 60
    assert len(places) == len(set(places))


@pytest.mark.parametrize("mutant", MUTANTS, ids=_id)
def test_every_fault_dies_by_its_law(mutant):
    """Each fault, planted in the first of its kernels, is killed by a law that it names."""
    kernel = all_kernels()[mutant.kernels[0]]

    verdict = self_test.examine_mutant(mutant, kernel, Effort(2, 3), seed=0)

    assert verdict.is_right, verdict.line()


@pytest.mark.parametrize("mutant", MUTANTS, ids=_id)
def test_a_fault_names_laws_of_its_kernels(mutant):
    """What must kill a fault is a law that every example or its kernel is held to, or a class of exception."""
    for name in mutant.kernels:
        assert set(mutant.laws) <= {*laws_of(all_kernels()[name])} | {"IndexError", "RuntimeError", "ZeroDivisionError"}


@pytest.mark.parametrize("name", self_test.kernels_with_mutants())
def test_the_kernels_that_faults_are_planted_in_are_right(name):
    """Without a fault every law holds: it is the fault that is killed, not the kernel."""
    kernel = all_kernels()[name]
    few = replace(kernel, page_sizes=kernel.page_sizes[:2], dtypes=kernel.dtypes[:2])

    no_fault = replace(NO_FAULT, kernels=(name,), within=kernel.workload.needs(kernel.cells()[0]))

    verdict = self_test.examine_mutant(no_fault, few, Effort(2, 3), seed=0)

    assert verdict.killer is None, verdict.line()
    assert verdict.examples


def test_a_survivor_is_listed_and_fails_the_run(monkeypatch, capsys):
    """A fault that no law sees ends in exit status 1 and is named with what it stands for."""
    monkeypatch.setattr(self_test, "MUTANTS", (NO_FAULT,))

    status = self_test.run("quick", kernels=[KERNEL])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert lines[1].split()[:3] == ["no", "fault", "SURVIVED"]
    assert lines[-1] == f"  survivor: 'no fault' in {KERNEL}: nothing is wrong"


def test_a_wrong_law_fails_the_run(monkeypatch, capsys):
    """A fault that another law kills than the one it names is not counted as killed."""
    wrong = Mutant("lost", (KERNEL,), ("errors", "split"), "why", lambda: lambda kernel, given: None)
    monkeypatch.setattr(self_test, "MUTANTS", (wrong,))

    status = self_test.run("quick", kernels=[KERNEL])

    out = capsys.readouterr().out
    assert status == 1
    assert "vacuous (WRONG)" in out
    assert "1 mutants in 1 places, 0 killed as they must be. Kills by law: vacuous 1. Profile quick, seed 0." in out
    assert f"  wrong law: 'lost' in {KERNEL} was killed by vacuous, not by errors or split\n" in out


def test_a_law_that_kills_nothing_fails_the_run(monkeypatch, capsys):
    """Laws without a kill are listed; with the kernels named by the user the others are expected to be idle."""
    nothing = Mutant("nothing", (KERNEL,), ("vacuous",), "why", lambda: lambda kernel, given: None)
    monkeypatch.setattr(self_test, "MUTANTS", (nothing,))

    assert self_test.run("quick", kernels=[KERNEL]) == 0
    capsys.readouterr()
    assert self_test.run("quick") == 1

    idle = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  idle law: ")]
    assert idle == [f"  idle law: {law} killed nothing" for law in self_test.laws() if law != "vacuous"]


def test_the_command_runs_it_with_profile_kernel_and_seed(capsys):
    """``--self-test`` honours the options that mean something to it."""
    options = ["--profile", "quick", "--kernel", "copy_all_layer_kv_cache_cpu", "--hypothesis-seed", "7"]

    assert main(["conformance", "--self-test", *options]) == 0

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("5 mutants in 5 places, 5 killed as they must be. ")
    assert last.endswith("Profile quick, seed 7.")


@pytest.mark.parametrize("options", [["--dtype", "int8"], ["-x"], ["--profile", "fast"], ["--kernel", "transfer_kv"]])
def test_what_it_cannot_honour_is_refused(options, capsys):
    """A filter that would be ignored is an error, not a silent whole run."""
    with pytest.raises(SystemExit) as stop:
        main(["conformance", "--self-test", *options])

    assert stop.value.code == 2
    assert "sglhw conformance --self-test: error:" in capsys.readouterr().err


def test_input_that_must_be_refused_reaches_the_right_kernel():
    """A fault about bytes must not be killed for what its wrapper does to errors."""
    seen = []
    mutant = Mutant("any", (KERNEL,), ("reference",), "why", lambda: lambda kernel, given: seen.append(given))
    kernel = plant_in(mutant, KERNEL, self_test.RIGHT)[KERNEL]
    pool, one = torch.zeros((2, 8), dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)

    kernel(pool, pool, one, one, 8)
    with pytest.raises(RuntimeError, match="same length"):
        kernel(pool, pool, one, torch.zeros(2, dtype=torch.int64), 8)

    assert [given["item_size"] for given in seen] == [8]
