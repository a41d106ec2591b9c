"""Who may import whom, and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Lowest first; a module imports from its own layer or lower ones only. A package stands for all in it unless one of
# its modules is named.
LAYERS = [
    {"types", "errors"},
    {"score"},
    {
        "text",
        "config",
        "records",
        "formats",
        "jsonrows",
        "segment",
        "appending",
        "streaming",
        "aggregate",
        "outcome",
        "answer_worker",
        "output",
        "digests",
        "places",
        "calibration",
    },
    {
        "evidence",
        "evidence.tokens",
        "evidence.trees",
        "evidence.expressions",
        "evidence.arithmetic",
        "evidence.chains",
        "evidence.values",
        "evidence.reading",
        "evidence.truth",
        "evidence.equations",
        "evidence.claims",
    },
    {"sandbox"},
    {"prompting", "labels", "models", "adapters", "voting"},
    {"cache"},
    {"recall"},
    {
        "rendering",
        "backends.base",
        "backends.scripted_policy",
        "backends.kv",
        "backends.lockstep",
        "backends.loading",
        "blocking",
    },
    {
        "critique",
        "backends.fitting",
        "backends.endpoint",
        "backends.checks",
        "backends.endpoints",
        "backends.pace",
        "backends.streams",
        "backends.wire",
        "backends.head",
        "backends.sampling",
        "backends.vllm_drivers",
    },
    {"evidence.programs", "policy", "evidence.rollouts"},
    {"evidence.support"},
    {"evidence.rule", "evidence.block", "evidence.features", "evidence.collect", "evidence.roller"},
    {"backends.engine"},
    {"backends.transformers", "backends.scripted", "backends.vllm", "backends.openai", "backends"},
    {"ballots"},
    {"judging", "bench_sandbox", "bench.figure"},
    {"verifier", "baselines"},
    {"report"},
    {"evaluation"},
    {"search"},
    {"serve", "client"},
    {"build"},
    {"bulk"},
    {"integrations"},
    {"distill"},
    {"bench"},
    {"cli"},
]
# The sandbox's limits are plain numbers that the config holds.
ALLOWED = {("config", "sandbox.limits")}
HEAVY = {
    *("torch", "transformers", "vllm", "trl", "datasets", "outlines", "sympy", "math_verify", "numpy", "rich.table"),
    *("matplotlib", "sklearn", "pyarrow", "ray", "fsspec"),
}


def layer_of(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if module in names:
            return number
    for number, names in enumerate(LAYERS):
        if module.split(".")[0] in names:
            return number
    raise AssertionError(f"{module} stands in no layer")


def modules() -> list[tuple[str, Path]]:
    found = [(file.relative_to(ROOT / "genprm"), file) for file in sorted((ROOT / "genprm").rglob("*.py"))]
    found += [(file.relative_to(ROOT), file) for file in sorted((ROOT / "distill").rglob("*.py"))]
    return [(".".join(name.with_suffix("").parts), file) for name, file in found]


def imported(name: str, file: Path) -> set[str]:
    """Modules of the package that a file imports anywhere in it."""
    package = name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module.split(".") if node.module else [])]
            names = [".".join(target)] if node.module else [".".join([*target, alias.name]) for alias in node.names]
            found.update(item for item in names if item)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("genprm."):
            found.add(str(node.module).removeprefix("genprm."))
    return found


@pytest.mark.parametrize(("name", "file"), [pair for pair in modules() if pair[0] != "__init__"])
def test_imports_go_downwards_only(name, file):
    here = name.removesuffix(".__init__")
    for target in imported(name, file):
        if target in ("__version__", "") or (here, target) in ALLOWED:
            continue
        assert layer_of(target) <= layer_of(here), f"{here} imports {target}"


@pytest.mark.parametrize(
    "statement", ["import genprm", "import genprm.cli.main", "import genprm; genprm.GenPRM; genprm.load"]
)
def test_importing_loads_no_heavy_library(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_name_that_is_exported_is_there():
    import genprm

    for name in [*genprm.__all__, "__version__"]:
        assert getattr(genprm, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        genprm.nonsense  # noqa: B018


def test_a_bare_import_costs_little_beside_the_interpreter():
    """The fastest of several starts, so that a busy machine does not decide."""
    import time

    def fastest(code: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest("import genprm") - fastest("pass") < 0.5
