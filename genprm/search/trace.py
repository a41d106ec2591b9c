"""What a search did, node by node: a JSONL file for programs and one HTML page for people, a pair for each problem.

The page needs no script, no server and no request; texts of models enter it through Jinja's escaping only, and a
content security policy forbids everything but its own style. It looks like the report, whose style it uses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..report.parts import Table
from ..text import shorten
from .result import SearchResult
from .scene import Scene
from .tree import Node

OPEN_NODES = 60
"""A page with at most this many nodes is shown unfolded."""
MAX_NAME = 60


class TraceWriter:
    """Writes traces into a folder."""

    def __init__(self, folder: Path):
        """Make sure that the folder can be written, before anything slow.

        Raises:
            UsageError: it cannot.
        """
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror}") from None

    def write(self, result: SearchResult, scene: Scene) -> tuple[Path, Path]:
        """Write one problem's trace, whole or not at all; returns the JSONL file and the page.

        Raises:
            UsageError: a file cannot be written.
        """
        name = file_name(result.id)
        rows = list(trace_rows(result, scene))
        lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
        return self._put(f"{name}.jsonl", lines), self._put(f"{name}.html", page(result, rows))

    def _put(self, name: str, text: str) -> Path:
        path = self.folder / name
        draft = path.with_name(f".{name}.{os.getpid()}.tmp")
        try:
            draft.write_bytes(text.encode("utf-8", "backslashreplace"))
            draft.replace(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)
        return path


def file_name(id: str) -> str:
    """A file name for a problem's id; a digest keeps apart ids that spell alike, or too long, as one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", id).strip(".-")[:MAX_NAME]
    if plain and plain == id:
        return plain
    return f"{plain or 'problem'}-{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def trace_rows(result: SearchResult, scene: Scene) -> Iterator[dict[str, Any]]:
    """One object a node, parents first; the root has no step."""
    chosen = chosen_nodes(result, scene)
    for node in scene.tree.nodes:
        judgment = node.judgments[-1] if node.parent is not None else None
        vote = min(judgment.votes, key=lambda one: one.p_yes, default=None) if judgment is not None else None
        yield {
            "id": node.id,
            "parent": None if node.parent is None else node.parent.id,
            "depth": len(node.path),
            "step": node.step,
            "reward": None if judgment is None else judgment.reward,
            "verdict": "unscored" if judgment is None else judgment.verdict,
            "unscored_reason": _reason(node) if judgment is None else judgment.unscored_reason,
            "score": scene.score(node) if node.parent is not None else None,
            "visits": node.visits,
            "value": node.value,
            "prior": node.prior if node.parent is not None and node.visits else None,
            "copies": node.copies,
            "finished": node.finished,
            "chosen": node.id in chosen,
            "round": node.round,
            "note": node.note,
            "critique": None if vote is None else vote.critique,
            "tokens": node.tokens,
        }


def chosen_nodes(result: SearchResult, scene: Scene) -> set[int]:
    """The nodes of the pick, from the root."""
    if result.pick is None:
        return set()
    return {0, *(node.id for node in scene.tree.nodes[result.pick.node].path)}


def _reason(node: Node) -> str | None:
    return None if node.parent is None else node.unscored_reason or "it was not judged"


def page(result: SearchResult, rows: list[dict[str, Any]]) -> str:
    """The whole page as text."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = _asset("report", "page.css") + _asset("search", "tree.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    counts = result.counts
    facts = [
        ("Method", result.method),
        ("Picked answer", (result.pick.answer if result.pick else None) or "none"),
        ("Candidates", f"{counts.candidates} ({counts.finished} finished)"),
        ("Judgements", f"{counts.judged} made, {counts.reused} reused"),
        ("Policy", result.policy),
        ("Judge", result.model),
    ]
    children: dict[int, list[int]] = {}
    for row in rows[1:]:
        children.setdefault(row["parent"], []).append(row["id"])
    return environment.from_string(_asset("search", "tree.html.jinja")).render(
        title=shorten(result.problem, 120),
        result=result,
        facts=facts,
        table=_table(result),
        rows=rows,
        children=children,
        unfold=len(rows) <= OPEN_NODES,
        policy=policy,
        style=Markup(style),
        number=lambda value: "–" if value is None else f"{value:.3f}",
    )


def _table(result: SearchResult) -> Table:
    """What each way to choose says."""
    pick, plain, weighted, right = result.pick, result.majority, result.weighted_majority, result.correct
    rows = [
        ("pick", pick.answer if pick else None, pick.reward if pick else None, right.pick if right else None),
        ("majority", plain and plain.answer, plain and plain.share, right.majority if right else None),
        (
            "weighted majority",
            weighted and weighted.answer,
            weighted and weighted.share,
            right.weighted_majority if right else None,
        ),
    ]
    words = {True: "right", False: "wrong", None: "–"}
    return Table(
        "Answers",
        ["chosen by", "answer", "reward or share", "against the reference"],
        [
            (name, answer or "–", "–" if value is None else f"{value:.3f}", words[ok])
            for name, answer, value, ok in rows
        ],
    )


def _asset(package: str, name: str) -> str:
    return (files(f"genprm.{package}") / "assets" / name).read_text(encoding="utf-8")
