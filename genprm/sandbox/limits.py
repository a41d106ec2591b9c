"""What one block of code may use before it is stopped."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Limits of one block; a session's child process keeps the memory limit for its whole life."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_seconds: float = Field(default=5.0, gt=0, le=3600)
    """Processor time, so that a busy machine does not turn a right program into a timeout."""
    wall_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Time on the clock: stops code that sleeps or waits. Looser than `cpu_seconds`."""
    memory_mb: int = Field(default=512, ge=16, le=1_048_576)
    """Address space on top of the interpreter with sympy and numpy loaded."""
    output_chars: int = Field(default=2_000, ge=80)
    """What the model is shown: longer output keeps its head and its tail."""
    output_bytes: int = Field(default=1_000_000, ge=1_000)
    """A block that prints more than this is stopped."""
    source_chars: int = Field(default=100_000, ge=1)
    """A longer block is refused and not run."""
