"""genprm: a generative process reward model.

A verifier model writes a critique of each step of a solution, runs Python, and only then judges the step; the
step's reward is the exact probability of its Yes. Importing this package loads no model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import search
    from .build import load, load_policy, load_search
    from .config import Config, load_config
    from .errors import GenPRMError
    from .records import read_solutions
    from .segment import segment
    from .types import Solution, VerificationResult
    from .verifier import GenPRM

_EXPORTS = {
    "Config": "config",
    "GenPRM": "verifier",
    "GenPRMError": "errors",
    "Solution": "types",
    "VerificationResult": "types",
    "load": "build",
    "load_config": "config",
    "load_policy": "build",
    "load_search": "build",
    "read_solutions": "records",
    "segment": "segment",
}

__all__ = ["Config", "GenPRM", "GenPRMError", "Solution", "VerificationResult", "load", "load_config"]
__all__ += ["load_policy", "load_search", "read_solutions", "search", "segment"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    if name == "search":
        return import_module(".search", __name__)
    if name == "__version__":
        # Read when asked for: importlib.metadata alone takes longer to import than this package.
        return import_module("importlib.metadata").version("genprm")
    raise AttributeError(f"module 'genprm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
