"""Bad rows of bulk commands: listed beside their file, or beside the output where that cannot be written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..records import Rejected


def list_rejected(rejected: Sequence[Rejected], output: Path | None) -> None:
    """Write each file's bad rows to `FILE.rejected.jsonl`, else to `OUTPUT.rejected.jsonl`; say if neither can be."""
    for name in dict.fromkeys(row.file for row in rejected):
        text = "".join(json.dumps(row.as_row(), ensure_ascii=True) + "\n" for row in rejected if row.file == name)
        places = [] if name in ("-", "<stdin>") else [Path(f"{name}.rejected.jsonl")]
        if output is not None:
            places.append(Path(f"{output}.rejected.jsonl"))
        for place in places:
            try:
                place.write_text(text, encoding="utf-8")
                break
            except OSError:
                continue
        else:
            if places:
                message = f"bad rows of {name} are not listed in a file: its folder cannot be written"
                print(f"genprm: {message}", file=sys.stderr)
