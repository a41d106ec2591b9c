"""A trained adapter becomes part of its base's weights, or travels to a folder or to the hub.

Knows folders and the hub's client. Nothing is overwritten, and nothing is sent anywhere unless `push` is called.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ..adapters import SETTINGS, adapter_folder
from ..errors import UnavailableError, UsageError
from ..models import merge, offline, resolve


def merge_adapter(adapter: str | Path, out: Path, *, base: str | None = None) -> Path:
    """Write the model with the adapter in its weights.

    Args:
        adapter: folder or hub id.
        out: a folder that is not there yet.
        base: the model that the adapter was trained on, by name, folder or hub id; None = as the adapter says.

    Returns:
        The folder.

    Raises:
        UsageError: `out` is there already, or nothing says which model the base is.
        ModelUnavailable: one of both cannot be read, or they do not belong together.
    """
    if out.exists():
        raise UsageError(f"{out} is there already: give another folder")
    folder = adapter_folder(adapter)
    named = base or base_of(folder)
    if not named:
        raise UsageError(f"{folder / SETTINGS} does not name the base model: give it with --base")
    scratch = out.with_name(f".{out.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        merge(resolve(named), folder, scratch)
        card = folder / "README.md"
        if card.is_file():
            shutil.copy2(card, scratch)
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return out


def base_of(folder: Path) -> str | None:
    """The base model that an adapter names."""
    try:
        named = json.loads((folder / SETTINGS).read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        return None
    return str(named) if named else None


def push(folder: Path, to: str, *, private: bool = True) -> str:
    """Copy a trained model, with its card, to another folder or to the hub.

    Args:
        folder: of an adapter or of whole weights.
        to: a path (with `/`, `.` or `~` in front) or a hub id OWNER/NAME.
        private: of a hub repository that is made now.

    Returns:
        Where it lies.

    Raises:
        UsageError: `folder` holds no model, or the target is there already.
        UnavailableError: the hub refuses, or GENPRM_OFFLINE forbids it.
    """
    if not any((folder / name).is_file() for name in (SETTINGS, "config.json")):
        raise UsageError(f"{folder} holds no model: there is neither {SETTINGS} nor config.json in it")
    if to.startswith((".", "/", "~")) or to.count("/") != 1:
        target = Path(to).expanduser()
        if target.exists():
            raise UsageError(f"{target} is there already: give another folder")
        shutil.copytree(folder, target)
        return str(target)
    if offline():
        raise UnavailableError(f"GENPRM_OFFLINE forbids sending {folder} to the hub")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        api = HfApi()
        api.create_repo(to, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=to, folder_path=str(folder)))
    except (OSError, ValueError, HfHubHTTPError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise UnavailableError(f"the hub did not take {to!r}: {first}") from error
