"""Shipped verifier protocols: folders of Jinja2 templates with a manifest."""
