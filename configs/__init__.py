"""Shipped configurations (YAML)."""
