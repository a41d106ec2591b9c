"""The model card of a distilled verifier, written from the manifests of its run: nothing on it is typed by hand.

Knows manifests; what a manifest does not say is said to be unknown. The licence is the base model's, where it is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..models import MODELS
from .config import STAGES
from .store import read_manifest, replace_file

CARD = "README.md"
Manifests = Mapping[str, Mapping[str, Any]]


def write_card(out: Path, *, licence: str | None = None) -> Path:
    """Write the card beside a run's trained weights.

    Args:
        out: the run's folder.
        licence: of the weights; None = that of the named base model, else `unknown`.

    Raises:
        UsageError: the run has no trained weights.
    """
    final = out / "train" / "final"
    if not final.is_dir():
        raise UsageError(f"{final} is not there: run `genprm distill train` first")
    manifests = {stage: read_manifest(out / stage) or {} for stage in STAGES}
    table = out / "evaluate" / "table.md"
    metrics = table.read_text(encoding="utf-8") if table.is_file() else None
    replace_file(final / CARD, card(manifests, metrics, licence=licence).encode("utf-8", "backslashreplace"))
    return final / CARD


def run_of(folder: Path) -> Path | None:
    """The run whose trained weights a folder holds; None where it is none of a run's."""
    parents = folder.resolve().parents
    if folder.name == "final" and len(parents) > 1 and read_manifest(parents[0]) is not None:
        return parents[1]
    return None


def card(manifests: Manifests, metrics: str | None, *, licence: str | None = None) -> str:
    """The card's text.

    Args:
        manifests: by stage; empty where a stage has not been run.
        metrics: the table of stage `evaluate`; None = there is none.
        licence: of the weights.
    """
    train = manifests.get("train") or {}
    settings = train.get("settings") or {}
    base = str(train.get("base_model") or (settings.get("student") or {}).get("model") or "unknown")
    known = MODELS.get(base)
    terms = licence or (known.licence if known is not None else None)
    method = settings.get("method", "unknown")
    verify = (settings.get("student") or {}).get("verify") or {}
    parts = [
        "---",
        f"base_model: {base}",
        f"license: {(terms or 'unknown').lower() if terms and ' ' not in terms else 'other'}",
        f"library_name: {'peft' if method == 'lora' else 'transformers'}",
        "tags: [process-reward-model, verifier, genprm]",
        "---",
        "",
        f"# A verifier distilled from {base}",
        "",
        "A generative process reward model: for each step of a solution it writes a short critique, may run Python, "
        "and gives P(Yes) that the step is right. Made by `genprm distill`.",
        "",
        "## Use",
        "",
        "```console",
        _use(base, method, verify),
        "```",
        "",
        f"The protocol is part of the model: it was trained under `{verify.get('protocol', 'unknown')}`, mode "
        f"`{verify.get('mode', 'unknown')}`; under another one its rewards mean little.",
        "",
        "## Data",
        "",
        *_stages(manifests),
        "",
        "## Recipe",
        "",
        *_recipe(train, settings),
        "",
        "## Metrics",
        "",
        metrics.strip() if metrics else "Not measured: stage `evaluate` has not been run.",
        "",
        "## Licence",
        "",
        f"{terms or 'Unknown'}{' (that of the base model)' if terms and not licence else ''}. The terms of the "
        "training problems and of the teacher's output may add to it; they are named under Data.",
        "",
        "## Limits",
        "",
        "- Fitted to problems like those it was trained on, in English; other kinds were not measured.",
        "- A reward is an estimate. What it says of a step that an adversary wrote for it was not measured.",
        "- Its code has to run in a sandbox; without one, use a mode that runs none.",
        "- Labels of the training data come from the rules named in the manifests, and are not free of error.",
        "",
    ]
    return "\n".join(parts)


def _use(base: str, method: str, verify: Mapping[str, Any]) -> str:
    where = "--set backend.lora=FOLDER" if method == "lora" else ""
    model = base if method == "lora" else "FOLDER"
    words = ["$ genprm verify solutions.jsonl", f"--model {model}", where]
    words += [f"--set verify.{key}={verify[key]}" for key in ("protocol", "mode") if key in verify]
    return " ".join(word for word in words if word)


def _stages(manifests: Manifests) -> list[str]:
    lines = ["| stage | rows in | rows out | rejected | why |", "|---|---|---|---|---|"]
    for stage in STAGES[:5]:
        manifest = manifests.get(stage) or {}
        counts = manifest.get("counts") or {}
        reasons = sorted((manifest.get("reasons") or {}).items(), key=lambda item: -item[1])
        why = "; ".join(f"{reason}: {count}" for reason, count in reasons[:4])
        numbers = [str(counts.get(key, "–")) for key in ("in", "out", "rejected")]
        lines.append(f"| {stage} | {' | '.join(numbers)} | {why} |")
    sources = (manifests.get("sample") or {}).get("inputs") or {}
    lines += ["", *(f"- `{Path(name).name}`, sha256 `{digest}`" for name, digest in sources.items())]
    teacher = ((manifests.get("critique") or {}).get("settings") or {}).get("verify_config") or {}
    if teacher:
        lines += [f"- critiques by `{teacher.get('model', 'unknown')}`"]
    return lines


def _recipe(train: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    named = [key for key in settings if key not in ("student", "cost")]
    facts = ("steps", "tokens", "train_seconds", "trained_parameters", "dtype", "device", "processes", "rows_learnt")
    facts = (*facts, "rows_held_out", "stopped_early")
    lines = [f"- {key}: {json.dumps(settings[key])}" for key in named]
    lines += [f"- {key.replace('_', ' ')}: {json.dumps(train[key])}" for key in facts if key in train]
    if best := train.get("best"):
        shown = {key: best[key] for key in ("step", "verdicts", "verdict_f1", "verdict_auroc") if key in best}
        lines.append(f"- weights of the best look at held-out verdicts: {json.dumps(shown)}")
    versions = train.get("versions") or {}
    lines.append(f"- versions: {', '.join(f'{name} {version}' for name, version in versions.items()) or 'unknown'}")
    return lines
