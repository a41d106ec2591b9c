"""Which published format a row has, and how its fields map to genprm's own.

Knows the field names and conventions of PRM800K, Math-Shepherd, OmegaPRM and PRMBench (ProcessBench rows are genprm
records already). Knows nothing about files; what the fields hold is checked by the caller, who sees a `Draft`.

One row gives one record. What a gold label means in each format:

| format | steps | `label` |
|---|---|---|
| PRM800K (raw) | at each position the chosen completion, else the human one, else the first one rated -1, with which the trace ends: an erroneous trace stops at its first error, so its length tells the label | the first step rated -1; else -1 where `finish_reason` is `solution`, else unknown |
| Math-Shepherd | the pieces of `input` that end in the tag `ки`; the problem is what stands before `Step 1:` | the first step with `-` |
| OmegaPRM | the path with the most steps through the rollouts (the first of several); others are not read | the first step with Monte-Carlo value 0, from which no rollout came to the right answer |
| PRMBench | `modified_process`, for `modified_question` | the first of `error_steps` (1-based upstream; indices past the end are ignored, as upstream's scoring does); -1 where there are none. In the class `redundency` these are superfluous rather than wrong |
"""  # noqa: E501

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from .errors import InputError

Format = Literal["auto", "genprm", "processbench", "prm800k", "math-shepherd", "omegaprm", "prmbench"]
FORMATS: tuple[Format, ...] = get_args(Format)

ALIASES = {
    "problem": ("problem", "question", "prompt"),
    "solution": ("solution", "response", "completion"),
    "answer": ("answer", "reference_answer"),
}
"""Names that a genprm record may use for a field; the first one that is there and not null is read."""

_ALIASED = {key for keys in ALIASES.values() for key in keys}
_TAG = "ки"
_KINDS: dict[type[Any], str] = {str: "text", dict: "an object", list: "a list"}

Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Draft:
    """The fields of a row under genprm's names, with nothing checked yet."""

    problem: object
    steps: object = None
    solution: object = None
    answer: object = None
    label: object = None
    id: object = None
    meta: dict[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """What the row calls a field, where it differs: errors name the user's own field."""


def recognise(row: Row) -> Format:
    """Tell a row's format by its fields; what looks like none of the published ones is a genprm record."""
    if "steps" in row or "solution" in row:
        return "genprm"
    if isinstance(row.get("label"), dict) and "steps" in row["label"]:
        return "prm800k"
    if "modified_process" in row:
        return "prmbench"
    if "reasoning_steps" in row:
        return "omegaprm"
    if isinstance(row.get("input"), str) and isinstance(row.get("label"), str):
        return "math-shepherd"
    return "genprm"


def draft(row: Row, format: Format) -> Draft:
    """Map a row of one format, or of the recognised one, to genprm's fields.

    Raises:
        InputError: A field that the format needs is missing or wrongly typed; `field` says which.
    """
    return _READERS[recognise(row) if format == "auto" else format](row)


def kind_of(value: object) -> str:
    """A JSON value in words, for error messages: `the number 3`, `text`, `a list`."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"the number {shown(value)}"
    return "text" if isinstance(value, str) else "an object" if isinstance(value, Mapping) else "a list"


def shown(value: object) -> str:
    """The user's own value, short enough for one line."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of more than 4,300 digits refuses to be printed
        return "a huge number"


def _need(row: Row, key: str, kind: type[T], where: str = "") -> T:
    name = f"{where}.{key}" if where else key
    wanted = _KINDS[kind]
    if key not in row:
        raise InputError(f"is missing, {wanted} is needed", field=name)
    value = row[key]
    if not isinstance(value, kind):
        raise InputError(f"must be {wanted}, found {kind_of(value)}", field=name)
    return value


def _rest(row: Row, *used: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in used}


def _genprm(row: Row) -> Draft:
    names = {name: next((key for key in keys if row.get(key) is not None), keys[0]) for name, keys in ALIASES.items()}
    used = {names["problem"], names["answer"], "steps", "label", "id"}
    if row.get("steps") is None:
        used.add(names["solution"])
    rest = {key: row[key] for key in row if key not in used and not (row[key] is None and key in _ALIASED)}
    if isinstance(rest.get("meta"), dict):
        rest = rest.pop("meta") | rest
    return Draft(
        problem=row.get(names["problem"]),
        steps=row.get("steps"),
        solution=row.get(names["solution"]),
        answer=row.get(names["answer"]),
        label=row.get("label"),
        id=row.get("id"),
        meta=rest,
        names=names,
    )


def _processbench(row: Row) -> Draft:
    _need(row, "steps", list)
    if row.get("label") is None:
        raise InputError("is missing: a ProcessBench row has the index of the first wrong step, or -1", field="label")
    return _genprm(row)


def _prm800k(row: Row) -> Draft:
    question, label = _need(row, "question", dict), _need(row, "label", dict)
    steps: list[object] = []
    ratings: list[object] = []
    for index, step in enumerate(_need(label, "steps", list, "label")):
        where = f"label.steps[{index}]"
        if not isinstance(step, dict):
            raise InputError(f"must be an object, found {kind_of(step)}", field=where)
        taken = _prm800k_taken(step, where)
        if taken is None:
            break
        steps.append(_need(taken, "text", str, where))
        ratings.append(taken.get("rating"))
        if ratings[-1] == -1:
            break
    finished = label.get("finish_reason") == "solution"
    return Draft(
        problem=question.get("problem"),
        steps=steps,
        answer=question.get("ground_truth_answer"),
        label=ratings.index(-1) if -1 in ratings else -1 if finished else None,
        meta=_rest(row, "question", "label")
        | {"question": _rest(question, "problem", "ground_truth_answer")}
        | {"finish_reason": label.get("finish_reason"), "step_ratings": ratings},
        names={"problem": "question.problem", "steps": "label.steps", "answer": "question.ground_truth_answer"},
    )


def _prm800k_taken(step: Row, where: str) -> Row | None:
    """The completion with which the trace goes on or ends; None where the labeller left no usable one."""
    completions = step.get("completions") or []
    if not isinstance(completions, list) or not all(isinstance(item, dict) for item in completions):
        raise InputError("must be a list of objects", field=f"{where}.completions")
    chosen = step.get("chosen_completion")
    if chosen is not None:
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(completions):
            raise InputError(f"{shown(chosen)} is no completion's index", field=f"{where}.chosen_completion")
        return dict(completions[chosen])
    if step.get("human_completion") is not None:
        return _need(step, "human_completion", dict, where)
    return next((item for item in completions if item.get("rating") == -1), None)


def _math_shepherd(row: Row) -> Draft:
    text, label = _need(row, "input", str), _need(row, "label", str)
    *pieces, unrated = text.split(_TAG)
    if not pieces:
        raise InputError(f"has no step that ends in the tag {_TAG!r}", field="input")
    signs: list[str] = []
    position = 0
    for piece in pieces:
        position += len(piece)
        sign = label[position : position + 1]
        if label[position - len(piece) : position] != piece or sign not in ("+", "-"):
            message = f"does not repeat `input` with + or - in place of the tag at step {len(signs)}"
            raise InputError(message, field="label")
        signs.append(sign)
        position += 1
    problem, marker, first = pieces[0].rpartition("Step 1:")
    if not marker:
        raise InputError("has no `Step 1:` between the problem and the first step", field="input")
    steps = [marker + first, *pieces[1:], *([unrated] if unrated.strip() else [])]
    known = "-" in signs or len(steps) == len(signs)
    return Draft(
        problem=problem.strip(),
        steps=[step.strip() for step in steps],
        label=(signs.index("-") if "-" in signs else -1) if known else None,
        meta=_rest(row, "input", "label") | {"step_ratings": [1 if sign == "+" else -1 for sign in signs]},
        names={"problem": "input", "steps": "input"},
    )


def _omegaprm(row: Row) -> Draft:
    question = _need(row, "question", str)
    rollouts = row.get("reasoning_steps")
    if isinstance(rollouts, list):
        path = _path_of_prefixes(rollouts, question)
    elif isinstance(rollouts, dict):
        path = _path_of_tree(rollouts)
    else:
        raise InputError(f"must be a list or an object, found {kind_of(rollouts)}", field="reasoning_steps")
    if path and path[0][0].strip() == question.strip():
        path = path[1:]
    path = [(text.strip(), value) for text, value in path if text.strip()]
    values = [value for _, value in path]
    return Draft(
        problem=question,
        steps=[text for text, _ in path],
        answer=row.get("final_answer"),
        label=next((i for i, value in enumerate(values) if value == 0), None if None in values else -1),
        meta=_rest(row, "question", "final_answer", "reasoning_steps") | {"mc_value": values},
        names={"problem": "question", "steps": "reasoning_steps", "answer": "final_answer"},
    )


def _path_of_prefixes(rollouts: list[object], question: str) -> list[tuple[str, float | None]]:
    """Each rollout is a prefix of solutions; its parent is the longest other one that it continues."""
    prefixes: dict[str, float | None] = {}
    for index, item in enumerate(rollouts):
        where = f"reasoning_steps[{index}]"
        if not isinstance(item, dict):
            raise InputError(f"must be an object, found {kind_of(item)}", field=where)
        prefixes.setdefault(_need(item, "solution_prefix", str, where), _mc_value(item, where))
    # In sorted order a prefix stands before all that continue it, so a stack of open prefixes finds the parents.
    parents: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: 0}
    stack: list[str] = []
    for prefix in sorted(prefixes):
        while stack and not prefix.startswith(stack[-1]):
            stack.pop()
        parents[prefix] = stack[-1] if stack else None
        depth[prefix] = depth[parents[prefix]] + 1
        stack.append(prefix)
    node = _deepest(prefixes, depth.__getitem__)
    path: list[tuple[str, float | None]] = []
    while node is not None:
        parent = parents[node]
        start = len(parent) if parent is not None else len(question) if node.startswith(question) else 0
        path.append((node[start:], prefixes[node]))
        node = parent
    return path[::-1]


def _path_of_tree(root: dict[str, Any]) -> list[tuple[str, float | None]]:
    # No recursion: the depth of the tree is the user's.
    nodes: list[tuple[str, float | None, int | None, int]] = []
    waiting: list[tuple[object, int | None, int, str]] = [(root, None, 1, "reasoning_steps")]
    while waiting:
        node, parent, depth, where = waiting.pop()
        if not isinstance(node, dict):
            raise InputError(f"must be an object, found {kind_of(node)}", field=where)
        nodes.append((_need(node, "text", str, where), _mc_value(node, where), parent, depth))
        children = node.get("children") or []
        if not isinstance(children, list):
            raise InputError(f"must be a list, found {kind_of(children)}", field=f"{where}.children")
        here = len(nodes) - 1
        below = [(child, here, depth + 1, f"{where}.children[{i}]") for i, child in enumerate(children)]
        waiting += reversed(below)
    index = _deepest(range(len(nodes)), lambda i: nodes[i][3])
    path: list[tuple[str, float | None]] = []
    while index is not None:
        path.append(nodes[index][:2])
        index = nodes[index][2]
    return path[::-1]


def _deepest(items: Iterable[T], depth: Callable[[T], int]) -> T | None:
    return max(items, key=depth, default=None)


def _mc_value(node: Row, where: str) -> float | None:
    value = node.get("mc_value")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"must be a number, found {kind_of(value)}", field=f"{where}.mc_value")
    return value


def _prmbench(row: Row) -> Draft:
    steps, errors = _need(row, "modified_process", list), _need(row, "error_steps", list)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in errors):
        raise InputError("must be a list of 1-based step numbers", field="error_steps")
    inside = [item for item in errors if 1 <= item <= len(steps)]
    problem = "modified_question" if row.get("modified_question") is not None else "question"
    truth = row.get("ground_truth")
    return Draft(
        problem=row.get(problem),
        steps=steps,
        answer=truth if isinstance(truth, str) else None,
        label=min(inside) - 1 if inside else None if errors else -1,
        id=row.get("idx"),
        meta=_rest(row, problem, "modified_process"),
        names={"problem": problem, "steps": "modified_process", "id": "idx"},
    )


_READERS: dict[Format, Callable[[Row], Draft]] = {
    "genprm": _genprm,
    "processbench": _processbench,
    "prm800k": _prm800k,
    "math-shepherd": _math_shepherd,
    "omegaprm": _omegaprm,
    "prmbench": _prmbench,
}
