"""Protocols: folders of Jinja2 templates with a manifest, which say how a step is put to the model.

Knows templates, the layout of turns and the parts of a critique; knows no model, no tokenizer and no engine.
Adding a protocol needs no Python: `verify.protocol` also takes a folder's path.

A manifest's `parts` are written one after another in the assistant's turn:

- `write`: the host forces `prefix`, the model writes until a `stop` string, the host adds `close`;
- `code`: the same, inside a code fence; the block is executed and its output inserted; the model may go on
  (`after`) and open further blocks, at most `rounds`;
- `verdicts`: free text in which each `marker` opens a place where a step's label is read;
- `host`: the named block given by the caller (for example evidence), or nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import jinja2
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import ProtocolError
from .text import neutralise
from .types import ProtocolRef, Solution

FENCE = "```"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Part(_Strict):
    """One stretch of the assistant's turn."""

    name: str
    kind: Literal["write", "code", "verdicts", "host"] = "write"
    prefix: str = ""
    """Forced by the host before the model writes."""
    stop: tuple[str, ...] = ()
    """The model stops before any of these; end of turn always stops it."""
    close: str = ""
    """Added by the host afterwards, however the part ended."""
    max_tokens: int = 256
    """Bound for the whole part."""
    rounds: int = 1
    """`code`: how many blocks may run."""
    after: bool = False
    """`code`: the model writes on after the output, and may open another block."""
    marker: str = "\\boxed{"
    """`verdicts`: what opens a place where a label is read."""


class Judgement(_Strict):
    """The forced place at which the label distribution is read."""

    kind: Literal["yes_no", "first_error"] = "yes_no"
    prefix: str
    suffix: str = ""
    labels: dict[str, tuple[str, ...]] = {"Yes": ("Yes",), "No": ("No",)}
    """Label -> the spellings that count for it."""


class Example(_Strict):
    """A worked example, put before the real question as turns of its own."""

    user: str
    assistant: str


class Manifest(_Strict):
    """`manifest.yaml` of a protocol folder."""

    name: str
    description: str
    layout: Literal["independent", "multi_turn", "whole"]
    """`independent`: each step alone with the steps before it; `multi_turn`: step t is user turn t, so that each
    verdict sees the critiques before it; `whole`: one critique for all steps."""
    judges: bool = True
    """False: it writes something else than critiques, and no step can be judged with it."""
    parts: tuple[Part, ...]
    modes: dict[str, tuple[str, ...]]
    judgement: Judgement
    step_labels: dict[str, tuple[str, ...]] | None = None
    """Labels read at the markers of a `verdicts` part."""
    examples: tuple[Example, ...] = ()
    assistant_tag: bool = True
    """False: the turn that is being written is rendered without the template's assistant tag, as in the published
    demo of the R1-Distill based checkpoints."""
    code_output: str = "[Code Output]\n\n```\n{{ output }}\n```\n"
    delimiters: tuple[str, ...] = ()
    """Spellings that untrusted text may not contain."""


@dataclass(frozen=True, slots=True)
class Message:
    """One finished turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation whose last user turn is being answered; `prefix` is the answer so far."""

    messages: tuple[Message, ...]
    prefix: str = ""
    assistant_tag: bool = True

    def extended(self, prefix: str) -> Prompt:
        """The same conversation with another answer so far."""
        return Prompt(self.messages, prefix, self.assistant_tag)


@dataclass(frozen=True)
class Protocol:
    """A loaded protocol: renders conversations and names the parts of a critique."""

    manifest: Manifest
    files: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The manifest's name."""
        return self.manifest.name

    @cached_property
    def ref(self) -> ProtocolRef:
        """Name and sha256 over the templates and manifest."""
        digest = hashlib.sha256()
        for name in sorted(self.files):
            digest.update(f"{name}\0{self.files[name]}\0".encode())
        return ProtocolRef(name=self.name, sha256=digest.hexdigest())

    @cached_property
    def _environment(self) -> jinja2.Environment:
        return jinja2.Environment(
            loader=jinja2.DictLoader(dict(self.files)),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=False,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # prompts are plain text; untrusted parts go through `clean`
            auto_reload=False,  # `files` do not change
        )

    @cached_property
    def _examples(self) -> tuple[Message, ...]:
        """The example turns; they hang on nothing, and rendering them for each critique would be most of our work."""
        turns: list[Message] = []
        for example in self.manifest.examples:
            turns.append(Message("user", self._render(example.user)))
            turns.append(Message("assistant", self._render(example.assistant)))
        return tuple(turns)

    def _render(self, template: str, **values: Any) -> str:
        try:
            return self._environment.get_template(template).render(**values)
        except jinja2.TemplateError as error:
            raise ProtocolError(f"protocol {self.name!r}, template {template!r}: {error}") from None

    def text(self, source: str, **values: Any) -> str:
        """A forced string of the manifest with its variables filled in."""
        if "{{" not in source and "{%" not in source:
            return source
        try:
            return self._environment.from_string(source).render(**values)
        except jinja2.TemplateError as error:
            raise ProtocolError(f"protocol {self.name!r}, text {source!r}: {error}") from None

    def clean(self, text: str) -> str:
        """Untrusted text with this protocol's delimiters broken."""
        return neutralise(text, self.manifest.delimiters)

    def insert_output(self, output: str) -> str:
        """The host's block that shows a code block's output to the model."""
        shown = neutralise(self.clean(output), [FENCE]).rstrip("\n")
        source = self.manifest.code_output
        return source.replace("{{ output }}", shown)

    def parts(self, mode: str) -> tuple[Part, ...]:
        """The parts that are written in this mode.

        Raises:
            ProtocolError: the protocol has no such mode.
        """
        if mode not in self.manifest.modes:
            modes = ", ".join(self.manifest.modes)
            raise ProtocolError(f"protocol {self.name!r} has no mode {mode!r}; it has: {modes}")
        by_name = {part.name: part for part in self.manifest.parts}
        return tuple(by_name[name] for name in self.manifest.modes[mode])

    def first_error_labels(self, steps: int) -> dict[str, tuple[str, ...]]:
        """Labels "-1", "0" … "n-1", each spelled with the text that follows it, so that none begins another."""
        end = self.manifest.judgement.suffix[:1] or "\n"
        return {str(index): (f"{index}{end}",) for index in range(-1, steps)}

    def conversation(
        self,
        solution: Solution,
        index: int,
        *,
        previous: str = "",
        history: Sequence[Message] = (),
        blocks: Mapping[str, str] | None = None,
    ) -> Prompt:
        """The conversation in which step `index` is judged.

        Args:
            solution: the solution; its texts are cleaned here.
            index: 0-based; for the layout `whole` the last step that is shown.
            previous: the steps before `index` as `render_step` wrote them, joined.
            history: for `multi_turn`: user and assistant turns of the steps before.
            blocks: host-inserted blocks by name; a template shows those that it knows.
        """
        values = {
            "problem": self.clean(solution.problem),
            "step": self.clean(solution.steps[index]),
            "number": index + 1,
            "total": index + 1 if self.manifest.layout == "whole" else len(solution.steps),
            "previous": previous,
            "blocks": dict(blocks or {}),
        }
        messages: list[Message] = []
        if "system.jinja" in self.files:
            messages.append(Message("system", self._render("system.jinja", **values)))
        messages += self._examples
        messages += history
        messages.append(Message("user", self._render("user.jinja", **values)))
        return Prompt(tuple(messages), "", self.manifest.assistant_tag)

    def render_step(self, text: str, index: int) -> str:
        """One step as it stands among the previous steps of a prompt."""
        if "step.jinja" not in self.files:
            return ""
        return self._render("step.jinja", step=self.clean(text), number=index + 1) + "\n"


def shipped_protocols() -> list[str]:
    """Names of the protocols that come with the package."""
    return sorted(item.name for item in resources.files("genprm.prompts").iterdir() if _is_protocol(item))


def load_protocol(name_or_path: str) -> Protocol:
    """Load a shipped protocol by name or a folder by path.

    Raises:
        ProtocolError: there is none, or its manifest is wrong.
    """
    if "/" in name_or_path or name_or_path.startswith("."):
        folder: Traversable = Path(name_or_path)
    else:
        folder = resources.files("genprm.prompts").joinpath(name_or_path)
    if not _is_protocol(folder):
        shipped = ", ".join(shipped_protocols())
        raise ProtocolError(f"there is no protocol {name_or_path!r}; shipped: {shipped} (or give a folder's path)")
    files = {
        item.name: item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".jinja") or item.name == "manifest.yaml"
    }
    try:
        manifest = Manifest.model_validate(yaml.safe_load(files["manifest.yaml"]))
    except (yaml.YAMLError, ValidationError) as error:
        raise ProtocolError(f"protocol {name_or_path!r}: manifest.yaml: {' '.join(str(error).split())}") from None
    _check(manifest, files, name_or_path)
    return Protocol(manifest, files)


def _is_protocol(folder: Traversable) -> bool:
    return folder.is_dir() and folder.joinpath("manifest.yaml").is_file()


def _check(manifest: Manifest, files: Mapping[str, str], where: str) -> None:
    names = {part.name for part in manifest.parts}
    for mode, parts in manifest.modes.items():
        if missing := [name for name in parts if name not in names]:
            raise ProtocolError(f"protocol {where!r}: mode {mode!r} names parts that are not there: {missing}")
    wanted = ["user.jinja", *(file for example in manifest.examples for file in (example.user, example.assistant))]
    if missing := [name for name in wanted if name not in files]:
        raise ProtocolError(f"protocol {where!r} lacks the templates {missing}")
    if any(part.kind == "verdicts" for part in manifest.parts) and not manifest.step_labels:
        raise ProtocolError(f"protocol {where!r} has a `verdicts` part but no `step_labels`")
    for prefix in (manifest.judgement.prefix, *(part.marker for part in manifest.parts if part.kind == "verdicts")):
        if prefix.endswith(" "):
            # Byte-level BPE merges a trailing space with the label, so that the label would not be a token path of
            # its own at that place.
            raise ProtocolError(f"protocol {where!r}: a label is never read after a space: {prefix!r}")
