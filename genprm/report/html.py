"""One HTML file that shows judged solutions to a person: no server, no requests, opened from disk.

Solutions are streamed in. They are kept as gzip chunks in base64, which the browser opens when asked to, beside a list
of small entries; memory grows by the entries only. The file appears under its name when it is complete.

Text of models and data is untrusted. It enters the page through Jinja's escaping or as JSON that the script puts in as
text nodes; a content security policy allows that script alone. Knows results and page parts; knows nothing about
metrics.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ..errors import UsageError
from ..types import VerificationResult
from .parts import Cell, Plot, Section
from .rows import full_row, list_entry, to_json
from .summary import Summary

CHUNK_ROWS = 20
"""The most solutions of a chunk: opening one solution unpacks this many."""
CHUNK_CHARS = 512_000
"""A chunk also ends when its JSON is as long as this."""


class ReportWriter:
    """Writes a report; use as a context manager.

    >>> with ReportWriter("report.html", title="Judged") as report:  # doctest: +SKIP
    ...     report.add(result)

    Leaving the block finishes the report unless `finish` was called. After an exception nothing is written: call
    `finish` before it leaves the block to keep what was added.
    """

    def __init__(self, path: str | Path, *, title: str, subtitle: str = ""):
        """Prepare a report.

        Args:
            path: the file; one that is there is replaced when the report is complete.
            title: the page's heading.
            subtitle: a line below it.
        """
        self.path, self.title, self.subtitle = Path(path), title, subtitle
        self._summary = Summary()
        self._entries: list[str] = []
        self._chunk: list[str] = []
        self._chunks = 0
        self._spool: IO[bytes] | None = None
        self._finished = False

    @property
    def count(self) -> int:
        """Solutions added so far."""
        return self._summary.solutions

    def __enter__(self) -> Self:
        """Make sure that the file can be written, before anything slow.

        Raises:
            UsageError: it cannot.
        """
        if self.path.is_dir():
            raise UsageError(f"{self.path} is a folder: give a file name for the report")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._spool = tempfile.TemporaryFile(dir=self.path.parent)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None and not self._finished:
                self.finish()
        finally:
            if self._spool is not None:
                self._spool.close()

    def add(self, result: VerificationResult, extra: Mapping[str, Any] | None = None) -> None:
        """Put one judged solution into the report.

        Args:
            result: the solution; with a `label` the page also shows where the verdict differs.
            extra: shown with the solution. `group` (a data set, a subset) can also be filtered by.
        """
        entry = list_entry(result, extra) | {"at": (self._chunks, len(self._chunk))}
        row = to_json(full_row(result, extra))
        self._entries.append(to_json(entry))
        self._chunk.append(row)
        self._summary.add(result)
        if len(self._chunk) == CHUNK_ROWS or sum(map(len, self._chunk)) >= CHUNK_CHARS:
            self._pack()

    def finish(self, sections: Sequence[Section] | None = None) -> None:
        """Write the file, whole or not at all.

        Args:
            sections: tables and plots above the solutions; None = counts and a histogram of the step rewards.

        Raises:
            UsageError: the file cannot be written.
        """
        self._finished = True
        if self._chunk:
            self._pack()
        head = self._head(self._summary.sections() if sections is None else sections)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with draft.open("wb") as file:
                file.write(head.encode("utf-8", "backslashreplace"))
                self._opened.seek(0)
                shutil.copyfileobj(self._opened, file)
                file.write(b"</body>\n</html>\n")
            draft.replace(self.path)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)

    @property
    def _opened(self) -> IO[bytes]:
        assert self._spool is not None, "a ReportWriter is used in a `with` block"
        return self._spool

    def _pack(self) -> None:
        # No time stamp in the gzip header: the same results make the same bytes.
        packed = base64.b64encode(gzip.compress(f"[{','.join(self._chunk)}]".encode("ascii"), 6, mtime=0))
        opening = f'<script type="application/octet-stream;base64" id="chunk-{self._chunks}">'
        try:
            self._opened.write(opening.encode() + packed + b"</script>\n")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None
        self._chunks += 1
        self._chunk.clear()

    def _head(self, sections: Sequence[Section]) -> str:
        """The page up to its chunks."""
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters["cell"] = _cell
        style = _asset("page.css")
        script = f'"use strict";\n(() => {{\n{_asset("solution.js")}\n{_asset("page.js")}}})();\n'
        groups = [(plots, list(group)) for plots, group in groupby(sections, lambda part: isinstance(part, Plot))]
        return environment.from_string(_asset("page.html.jinja")).render(
            title=self.title,
            subtitle=self.subtitle,
            facts=self._summary.facts(),
            groups=groups,
            count=self.count,
            markup=Markup,
            policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
            "base-uri 'none'; form-action 'none'",
            style=Markup(style),
            script=Markup(script),
            index=Markup(f"[{','.join(self._entries)}]"),
        )


def _asset(name: str) -> str:
    from importlib.resources import files

    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else value
