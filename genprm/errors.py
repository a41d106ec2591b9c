"""Every exception that genprm raises on purpose.

A message says what happened, names the user's own value, and says what to do::

    GenPRMError
    ├── UsageError            exit code 2: the caller can mend it
    │   ├── InputError        a solution file or one of its rows
    │   ├── ConfigError       a config file, a `--set`, an unknown key
    │   └── ProtocolError     a template folder, or labels that the tokenizer cannot spell
    ├── UnavailableError      exit code 3: something outside is missing or broken
    │   ├── BackendUnavailable
    │   ├── ModelUnavailable
    │   └── SandboxUnavailable
    └── Unscored              no verdict on one step, with the reason; never a number in its place
        └── ContextOverflow
"""

from __future__ import annotations

from collections.abc import Sequence


class GenPRMError(Exception):
    """Base of all errors raised by genprm."""

    exit_code = 1


class UsageError(GenPRMError):
    """Something the caller gave is wrong."""

    exit_code = 2


class InputError(UsageError):
    """A solution file or a row of it cannot be used; names file, line and field where known."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None, field: str | None = None):
        self.message, self.file, self.line, self.field = message, file, line, field
        place = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(": ".join(part for part in (place, field, message) if part))


class ConfigError(UsageError):
    """A config key or value cannot be used."""


class ProtocolError(UsageError):
    """A protocol's templates, manifest or labels cannot be used with this model."""


class UnavailableError(GenPRMError):
    """Something outside of genprm is missing or broken; says nothing about the solution."""

    exit_code = 3


class BackendUnavailable(UnavailableError):
    """The engine is missing, dead, or refuses to answer."""


class ModelUnavailable(UnavailableError):
    """A model's files cannot be found, fetched or read."""


class SandboxUnavailable(UnavailableError):
    """Code cannot be confined on this machine in the way that was asked for."""

    def __init__(self, message: str, *, missing: Sequence[str] = ()):
        self.missing = tuple(missing)
        super().__init__(message)


class Unscored(GenPRMError):
    """No verdict can be given on a step; `reason` ends up in the result."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


class ContextOverflow(Unscored):
    """The prompt does not fit the model's context; nothing is cut to make it fit."""
