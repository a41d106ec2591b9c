"""Running blocks of Python that share one namespace, as a notebook does, and telling how each ended.

Needs the standard library only and nothing of this package: its text is also sent to remote sandboxes, where the
blocks of a session are run again in one program.
"""

from __future__ import annotations

import ast
import builtins
import io
import linecache
import sys
import traceback
import types
from typing import Any

OK, ERROR, MEMORY = "o", "e", "m"


class Blocks:
    """One namespace and the blocks run in it; printed output goes to `out`, in the order in which it was made."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self.exit_code = 0
        """Of the last block, as of a script."""
        self._names: set[str] = set()
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = module
        self._namespace = module.__dict__

    def run(self, source: str, *, echo: bool = True, silent: bool = False) -> str:
        """Run one block and write the value of its last expression, or its traceback.

        Args:
            source: the block.
            echo: write the repr of a trailing expression, as an interactive interpreter does.
            silent: write nothing: the block ran before and is run for its variables.
        """
        out = io.StringIO() if silent else self._out
        sys.stdout = sys.stderr = out
        # A name of its own for scripts: frames of a script that hosts blocks itself are not the blocks' frames.
        name = f"<block {len(self._names) + 1}>" if echo else "<script>"
        self._names.add(name)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            value = self._execute(source, name, echo)
            if value is not None:
                out.write(repr(value) + "\n")
            status, self.exit_code = OK, 0
        except SystemExit as stop:
            code = 0 if stop.code is None else stop.code if isinstance(stop.code, int) else 1
            status, self.exit_code = ERROR if code else OK, code & 0xFF
            if not isinstance(stop.code, (int, type(None))):
                out.write(f"{stop.code}\n")
        except BaseException as error:  # the code's own doing, whatever it is
            status, self.exit_code = MEMORY if isinstance(error, MemoryError) else ERROR, 1
            # With the frames go the objects that filled the memory; without them there is room for the text.
            out.write(self._describe(error) if status == ERROR else "MemoryError\n")
        out.flush()
        return status

    def _execute(self, source: str, name: str, echo: bool) -> object:
        tree = ast.parse(source, name)
        last = tree.body.pop() if echo and tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), self._namespace)
        if last is None:
            return None
        assert isinstance(last, ast.Expr)
        return eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), self._namespace)

    def _describe(self, error: BaseException) -> str:
        """The traceback with the blocks' own frames only: no library's path, no frame of the host."""
        try:
            report = traceback.TracebackException(type(error), error, error.__traceback__, lookup_lines=False)
            todo, seen = [report], set()
            while todo:
                part = todo.pop()
                if id(part) in seen:
                    continue
                seen.add(id(part))
                part.stack[:] = [frame for frame in part.stack if frame.filename in self._names]
                todo += [other for other in (part.__cause__, part.__context__) if other is not None]
                todo += getattr(part, "exceptions", None) or []
            return "".join(report.format())
        except BaseException:  # an exception whose own __str__ fails, or no memory left for the text
            return f"{type(error).__name__}\n"
