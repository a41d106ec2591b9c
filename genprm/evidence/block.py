"""The host's evidence block: what programs say of one step, in about 150 tokens, for a judge to read.

Every text in it comes from programs or the solution and is untrusted; values are shown shortened on one line, and the
protocol breaks its delimiters like in any other text.
"""

from __future__ import annotations

from ..text import shorten
from .support import SolutionSupport

MAX_ANSWERS = 3
MAX_CLAIMS = 4
VALUE_CHARS = 40


def evidence_block(found: SolutionSupport, index: int) -> str:
    """Answers with their shares, the step's claims with their support, and equalities that do not hold."""
    if not found.programs:
        return ""
    if not found.ran:
        return f"none of {len(found.programs)} programs ran to an answer"
    answers = ", ".join(
        f"{shorten(item.answer, VALUE_CHARS)} ({item.share:.0%})" for item in found.answers[:MAX_ANSWERS]
    )
    lines = [f"answers of {found.ran} programs: {answers}"]
    step = found.steps[index]
    for claim in [claim for claim in step.claims if not claim.given][-MAX_CLAIMS:]:
        value = shorten(claim.value, VALUE_CHARS)
        if claim.support:
            under = f" as {', '.join(shorten(name, VALUE_CHARS) for name in claim.names)}" if claim.names else ""
            lines.append(f"{value}: in {claim.support:.0%} of the programs{under}")
        else:
            lines.append(f"{value}: in no program")
    for equation in [item for item in step.equations if item.true is False][:2]:
        truth = f", it is {shorten(equation.true_value, VALUE_CHARS)}" if equation.true_value else ""
        lines.append(f"{shorten(equation.text, 2 * VALUE_CHARS)} does not hold{truth}")
    return "; ".join(lines)
