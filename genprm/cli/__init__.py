"""The command line: one file a command; the only place that picks concrete parts for a user."""
