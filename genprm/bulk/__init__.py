"""Judging more solutions than one process should: streams over workers that hold an engine and a sandbox each."""
