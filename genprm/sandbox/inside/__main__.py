"""Entry point of the fork server: makes this directory a package of its own, then hands over."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path


def _start() -> None:
    here = Path(__file__).resolve().parent
    # Python put this directory first on sys.path; its module names must not shadow anything for the hosted code.
    sys.path.remove(next(entry for entry in sys.path if Path(entry).resolve() == here))
    name = "genprm_inside"
    spec = importlib.util.spec_from_file_location(name, here / "__init__.py", submodule_search_locations=[str(here)])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    import_module(f"{name}.server").main(sys.argv[1])


if __name__ == "__main__":
    _start()
