"""A browser, shared with the report's tests."""

from __future__ import annotations

from report.conftest import browser, chromium

__all__ = ["browser", "chromium"]
