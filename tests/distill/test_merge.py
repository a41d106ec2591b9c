"""Adapters at inference: added to the weights by our own arithmetic, merged into a folder, and behind a name."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest

from genprm import adapters, models
from genprm.errors import ModelUnavailable, UnavailableError


@pytest.fixture(scope="session")
def student(tmp_path_factory, tiny_model, tiny_tokenizer):
    """The tiny model as a folder."""
    folder = tmp_path_factory.mktemp("student")
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


def load(folder):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def make_adapter(student, folder, **settings):
    """An adapter with random values, by PEFT, and the logits that PEFT gives with it."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        wrapped = get_peft_model(load(student), config).eval()
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2)
    wrapped.save_pretrained(folder)
    return wrapped(torch.tensor([[5, 9, 20, 31]])).logits.detach()


@pytest.fixture
def adapter(student, tmp_path):
    make_adapter(student, tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"use_dora": True}], ids=["plain", "rslora", "dora"])
def test_an_adapter_gives_the_logits_that_peft_gives(student, tmp_path, settings):
    import torch

    expected = make_adapter(student, tmp_path, **settings)
    ids = torch.tensor([[5, 9, 20, 31]])
    before = load(student)(ids).logits
    found = adapters.apply_adapter(load(student), tmp_path)(ids).logits
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(before, expected, atol=1e-2)


def test_a_kind_that_needs_peft_says_so_where_it_is_absent(student, tmp_path, monkeypatch):
    import sys

    make_adapter(student, tmp_path, use_dora=True)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UnavailableError, match="pip install 'genprm"):
        adapters.apply_adapter(load(student), tmp_path)


def test_a_plain_adapter_needs_no_peft(student, adapter, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    adapters.apply_adapter(load(student), adapter)


def test_an_adapter_of_another_model_is_refused_by_the_layers_name(student, adapter, tmp_path):
    from safetensors.torch import load_file, save_file

    path = adapter / adapters.WEIGHTS
    tensors = load_file(path)
    save_file({key.replace("layers.1", "layers.7"): value for key, value in tensors.items()}, path)
    with pytest.raises(ModelUnavailable, match=r"has no layer 'model\.layers\.7"):
        adapters.apply_adapter(load(student), adapter)


def test_a_folder_without_an_adapter_is_refused(tmp_path):
    with pytest.raises(ModelUnavailable, match=r"no adapter_config\.json"):
        adapters.adapter_folder(tmp_path)


def test_the_backend_judges_with_the_adapter_that_the_config_names(student, adapter):
    import torch

    from genprm.backends.transformers import TransformersBackend
    from genprm.config import BackendConfig

    ids = torch.tensor([[5, 9, 20, 31]])
    logits = []
    for lora in (None, str(adapter)):
        backend = TransformersBackend.load(student, config=BackendConfig(dtype="float32", device="cpu", lora=lora))
        logits.append(backend.engine.model(ids).logits)
        backend.close()
    assert not torch.allclose(logits[0], logits[1], atol=1e-2)


def test_merging_writes_a_model_that_judges_without_the_adapter(student, adapter, tmp_path):
    import torch
    from genprm.distill.merge import merge_adapter

    folder = merge_adapter(adapter, tmp_path / "merged", base=str(student))
    ids = torch.tensor([[5, 9, 20, 31]])
    wanted = adapters.apply_adapter(load(student), adapter)(ids).logits
    assert torch.allclose(load(folder)(ids).logits, wanted, atol=0.2, rtol=0.05)
    assert (folder / "tokenizer.json").is_file()
    with pytest.raises(Exception, match="is there already"):
        merge_adapter(adapter, folder, base=str(student))


def test_a_named_model_that_is_a_shipped_adapter_is_made_once_and_anew_for_another_adapter(
    student, adapter, tmp_path, monkeypatch
):
    import torch

    monkeypatch.setenv("GENPRM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "shipped_adapter", lambda name: adapter)
    monkeypatch.setitem(models.MODELS, "base", models.NamedModel("base", "", "", "", wheel=object()))
    monkeypatch.setitem(models.MODELS, "judge", models.NamedModel("judge", "", "MIT", "", base="base"))
    base = tmp_path / "cache" / "models" / "base"
    shutil.copytree(student, base)
    digests = {file.name: models._sha256(file) for file in base.iterdir()}
    (base / models.MANIFEST).write_text(json.dumps(digests))
    said = []
    folder = models.resolve("judge", said.append)
    assert said == ["adding the adapter judge to base (once)"]
    assert models.resolve("judge", said.append) == folder
    assert len(said) == 1
    ids = torch.tensor([[5, 9, 20, 31]])
    wanted = adapters.apply_adapter(load(student), adapter)(ids).logits
    assert torch.allclose(load(folder)(ids).logits, wanted, atol=0.2, rtol=0.05)
    make_adapter(student, adapter, use_rslora=True)
    assert models.resolve("judge", said.append) != folder


def test_a_named_adapter_that_the_package_lacks_is_said_to_be_missing():
    with pytest.raises(ModelUnavailable, match="lacks the adapter of 'no-such-adapter'"):
        models.shipped_adapter("no-such-adapter")
