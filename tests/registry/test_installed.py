"""Entry points: found like ``importlib.metadata`` finds them, which is asked only where there may be some."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from pytest_sglhw.registry.installed import entry_points

GROUP = "sglhw_test_group"
TEXT = f"[console_scripts]\nother = a:b\n\n[{GROUP}]\nmine = my_package.rows:add\n"


def install(folder, name="my_package-1.0.dist-info", text=TEXT):
    """Write the metadata of a distribution."""
    info = folder / name
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text(text)


def found():
    return [(entry_point.name, entry_point.value) for entry_point in entry_points(GROUP)]


@pytest.mark.parametrize("name", ["my_package-1.0.dist-info", "my_package.egg-info", "My_Package-1.0-py3.EGG-INFO"])
def test_an_installed_distribution(tmp_path, monkeypatch, name):
    """Whatever installed it."""
    install(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)

    assert found() == [("mine", "my_package.rows:add")]


def test_a_zip_file_on_the_path(tmp_path, monkeypatch):
    """A folder listing does not show what is in it, so the slow way is taken."""
    install(tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        for path in (tmp_path / "in").rglob("*.dist-info/*"):
            archive.write(path, path.relative_to(tmp_path / "in"))
    monkeypatch.syspath_prepend(tmp_path / "lib.zip")

    assert found() == [("mine", "my_package.rows:add")]


def test_a_finder_that_knows_distributions(monkeypatch):
    """Somebody else's finder may know of what no folder shows."""

    class Distribution(metadata.Distribution):
        def read_text(self, filename):
            return {"entry_points.txt": TEXT, "METADATA": "Name: my-package\nVersion: 1.0\n"}.get(filename)

        def locate_file(self, path):
            return path

    class Finder:
        def find_spec(self, *_):
            return None

        def find_distributions(self, *_):
            return [Distribution()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])

    assert found() == [("mine", "my_package.rows:add")]


def test_nobody_has_the_group(tmp_path, monkeypatch):
    """A distribution of another group, and folders that are not there."""
    install(tmp_path, text="[other]\nmine = my_package.rows:add\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / "gone")])

    assert found() == []


def test_the_metadata_of_others_is_left_alone():
    """The registry of a machine where nobody adds rows is filled without ``importlib.metadata``."""
    code = (
        "import sys; sys.modules.pop('importlib.metadata', None)\n"
        "from pytest_sglhw.registry.loading import load; assert load().platforms\n"
        "print('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
