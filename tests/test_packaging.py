"""What is in the wheel, and that it works when installed apart from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from a copy of the sources, so that the checkout is left alone."""
    folder, sources = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("genprm", "prompts", "configs", "distill"):
        shutil.copytree(ROOT / name, sources / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_module_template_and_config(wheel):
    members = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"genprm/{file.relative_to(ROOT / 'genprm')}" for file in (ROOT / "genprm").rglob("*.py")}
    wanted |= {f"genprm/configs/{file.relative_to(ROOT / 'configs')}" for file in (ROOT / "configs").rglob("*.yaml")}
    wanted |= {f"genprm/distill/{file.relative_to(ROOT / 'distill')}" for file in (ROOT / "distill").rglob("*.py")}
    wanted |= {f"genprm/distill/data/{file.name}" for file in (ROOT / "distill" / "data").glob("*.json")}
    for pattern in ("*.jinja", "manifest.yaml"):
        wanted |= {f"genprm/prompts/{file.relative_to(ROOT / 'prompts')}" for file in (ROOT / "prompts").rglob(pattern)}
    wanted |= {f"genprm/{file.relative_to(ROOT / 'genprm')}" for file in (ROOT / "genprm").glob("*/assets/*")}
    wanted.add("genprm/py.typed")
    assert wanted <= members, sorted(wanted - members)


def test_the_wheel_holds_nothing_else(wheel):
    members = zipfile.ZipFile(wheel).namelist()
    assert [name for name in members if not name.startswith(("genprm/", "genprm-"))] == []
    assert [name for name in members if "tests/" in name or name.endswith((".pyc", ".jsonl"))] == []


def test_licence_and_command_are_declared(wheel):
    archive = zipfile.ZipFile(wheel)
    info = next(name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = archive.read(info).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: pip" in metadata
    assert "Requires-Python: >=3.11" in metadata
    entries = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "genprm = genprm.cli.main:run" in entries


def test_the_installed_wheel_judges_without_the_checkout(wheel, tmp_path):
    """Unpacked alone on the path, with this environment's libraries: shipped prompts and configs are found."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (tmp_path / "in.json").write_text('{"problem": "p", "steps": ["1 + 1 = 3."]}')
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import genprm; "
        f"assert genprm.__file__.startswith({str(tmp_path)!r}), genprm.__file__; "
        "sys.argv = ['genprm', 'verify', 'in.json', '--config', 'scripted']; "
        "from genprm.cli.main import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert '"first_error":0' in done.stdout


def test_the_editable_install_finds_the_mapped_packages():
    from importlib.util import find_spec

    for name in ("genprm.prompts", "genprm.configs", "genprm.distill"):
        assert find_spec(name) is not None
