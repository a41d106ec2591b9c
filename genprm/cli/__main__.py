"""`python -m genprm.cli`, the same as `genprm`."""

from .main import run

run()
