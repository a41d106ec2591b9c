"""The two pages for people: judge a solution live at `/`, read about the routes at `/docs`.

Both are made once, hold all they need, and load nothing from anywhere. A content security policy allows their one
style and one script, by hash, and requests to this service only. They look like the report, whose style and step view
they use. Knows files and headers; the pages' behaviour is in assets/judge.js.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any, NamedTuple

from starlette.responses import Response

from .schema import ERRORS


class Page(NamedTuple):
    """A page that is made once and sent often."""

    text: str
    headers: dict[str, str]

    def response(self) -> Response:
        """The page, to be sent."""
        return Response(self.text, headers=self.headers, media_type="text/html")


def judge_page(*, model: str, protocol: str, token: bool) -> Page:
    """The page that judges a pasted solution.

    Args:
        model: named on the page.
        protocol: named on the page.
        token: True = callers need a bearer token, so the page asks for it.
    """
    style = _asset("report", "page.css") + _asset("serve", "judge.css")
    script = f'"use strict";\n(() => {{\n{_asset("report", "solution.js")}\n{_asset("serve", "judge.js")}}})();\n'
    return _page("judge.html.jinja", style, script, model=model, protocol=protocol, token=token)


def routes_page(openapi: dict[str, Any]) -> Page:
    """A readable form of the OpenAPI description."""
    style = _asset("report", "page.css") + _asset("serve", "judge.css")
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            entry = {
                "method": method.upper(),
                "path": path,
                "summary": route.get("summary", ""),
                "description": route.get("description", ""),
                "body": json.dumps(content["schema"], indent=2, ensure_ascii=False) if content else "",
                "answers": list(route["responses"]),
            }
            groups.setdefault((route.get("tags") or ["other"])[0], []).append(entry)
    errors = {code: answer["description"] for code, answer in ERRORS.items()}
    return _page("routes.html.jinja", style, "", title=openapi["info"]["title"], groups=groups, errors=errors)


def _page(template: str, style: str, script: str, **names: Any) -> Page:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_asset("serve", template)).render(
        style=Markup(style), script=Markup(script), **names
    )
    allowed = f"script-src {_hash(script)}; connect-src 'self'; " if script else ""
    policy = f"default-src 'none'; {allowed}style-src {_hash(style)}; img-src data:; base-uri 'none'; "
    headers = {
        "Content-Security-Policy": policy + "form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Page(text, headers)


def _asset(package: str, name: str) -> str:
    return (files(f"genprm.{package}") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
