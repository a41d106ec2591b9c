"""The table that a person reads: one row a step, and the solution's verdict below it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..text import shorten
from ..types import StepJudgment, VerificationResult, Vote
from .parts import Cell
from .parts import Table as PageTable

BAR = 10
STYLES = {"correct": "green", "incorrect": "bold red", "unscored": "yellow"}


def show_result(console: Console, result: VerificationResult) -> None:
    """Print one result as a table."""
    console.print(Text(shorten(result.problem, 2 * console.width), style="bold"))
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("#", justify="right")
    table.add_column("step", ratio=4)
    table.add_column("reward", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("critique", ratio=4)
    table.add_column("code", ratio=2)
    for step in result.steps:
        wrong = step.index == result.first_error
        table.add_row(
            f"{'▶' if wrong else ''}{step.index}",
            escape(shorten(step.text, 160)),
            _reward(step),
            Text("first error" if wrong else step.verdict, style=STYLES[step.verdict]),
            escape(_critique(step)),
            escape(_code(step)),
            style="" if not wrong else "on grey11",
        )
    console.print(table)
    console.print(_summary(result), highlight=False)


def show_table(given: PageTable) -> None:
    """Print a report's table."""
    console = Console()
    table = Table(title=given.title, caption=given.note or None, title_justify="left", caption_justify="left")
    for number, column in enumerate(given.columns):
        table.add_column(escape(column), justify="left" if number == 0 else "right")
    for row in given.rows:
        table.add_row(*(_cell(cell) for cell in row))
    console.print(table)


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.3f}" if isinstance(cell, float) else escape(str(cell))


def _reward(step: StepJudgment) -> Text:
    if step.reward is None:
        return Text("–".ljust(BAR + 5), style=STYLES["unscored"])
    full = round(step.reward * BAR)
    bar = "█" * full + "░" * (BAR - full)
    flag = "!" if any(vote.low_mass for vote in step.votes) else ""
    return Text(f"{bar} {step.reward:.2f}{flag}", style=STYLES[step.verdict])


def _critique(step: StepJudgment) -> str:
    """What the model wrote outside of code, without the host's forced text."""
    if step.unscored_reason is not None:
        return shorten(step.unscored_reason, 160)
    vote = step.votes[0]
    sources = {check.source.strip() for check in vote.checks}
    pieces = (piece for piece in _written(vote) if piece and piece not in sources)
    return shorten(" ".join(pieces), 160)


def _written(vote: Vote) -> list[str]:
    if vote.written is None:
        return [vote.critique.strip()]
    return [vote.critique[start:end].strip() for start, end in vote.written]


def _code(step: StepJudgment) -> str:
    checks = [check for vote in step.votes[:1] for check in vote.checks]
    if not checks:
        return "–"
    last = checks[-1]
    return (
        shorten(last.output or "(no output)", 80)
        if last.status == "ok"
        else f"[{last.status}] {shorten(last.output, 60)}"
    )


def _summary(result: VerificationResult) -> Text:
    if result.first_error is None:
        line = Text("undecided: a step is unscored", style=STYLES["unscored"])
    elif result.first_error < 0:
        line = Text("no error found", style=STYLES["correct"])
    else:
        line = Text(f"first error: step {result.first_error}", style=STYLES["incorrect"])
    reward = "–" if result.reward is None else f"{result.reward:.3f}"
    line.append(f" · reward {reward} ({result.aggregation})", style="default")
    if result.outcome is not None:
        known = {True: "right", False: "wrong", None: "undecided"}[result.outcome.correct]
        line.append(f" · answer {result.outcome.answer or '–'} is {known}", style="default")
    usage = result.usage
    line.append(
        f" · {result.model}, {result.protocol.name}, sandbox {result.sandbox}"
        f" · {usage.completion_tokens} tokens, {usage.code_runs} code runs, {usage.seconds:.1f} s",
        style="dim",
    )
    return line
