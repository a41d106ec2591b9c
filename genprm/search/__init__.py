"""Search for solutions with a policy model and a judge of steps: best-of-N, beam, DVTS, MCTS, critic.

>>> with genprm.load_search("scripted") as searcher:  # doctest: +SKIP
...     searcher.solve("What is 12 + 30?", "beam").pick.answer
'42'
"""

from .prefixes import PrefixJudge
from .result import Candidate, SearchResult
from .searcher import METHODS, Problem, Searcher

__all__ = ["METHODS", "Candidate", "PrefixJudge", "Problem", "SearchResult", "Searcher"]
