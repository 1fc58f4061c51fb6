"""Multi-hop questions without their paragraphs: the policy searches all paragraphs of the data."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from truing.envs.tools import Tool, ToolEpisode, tool
from truing.rewards import format_answer
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout, Task

from .bm25 import Bm25Index, Passage
from .env import Musique, MusiqueConfig
from .rows import Paragraph, Question

ADDED_QUERY_WORDS = (0, 4, 8, 16, 32)
"""Words of a paragraph that a demonstrated query may add to its title."""


@tool
def search(query: str) -> str:
    """Find paragraphs by the words of the query."""
    raise NotImplementedError("each episode has a search of its own, which keeps what was found")


class MusiqueSearch(Musique):
    """MuSiQue with ``mode = "search"``: search as often as needed, then answer without a call."""

    def __init__(self, config: MusiqueConfig) -> None:
        super().__init__(config)
        self.rewards = {**self.rewards, "support": (support, config.support_weight)}
        self._supporting = {q.task_id: _supporting(q) for q in self.questions}

    @cached_property
    def index(self) -> Bm25Index:
        """Return the paragraphs of all questions of both splits."""
        return Bm25Index(Passage(p.title, p.text) for q in self.questions for p in q.paragraphs)

    def open(self, task: Task) -> ToolEpisode:
        """Return an episode with a search tool; its outcome has queries, results and support."""
        supporting = [passage.key for passage in self._supporting[task.task_id]]
        queries: list[str] = []
        retrieved: dict[str, None] = {}

        def search_here(query: str) -> str:
            passages = self.index.search(query, self.config.search_results)
            queries.append(query)
            retrieved.update(dict.fromkeys(passage.key for passage in passages))
            texts = [passage.truncated(self.config.paragraph_chars) for passage in passages]
            return "\n\n".join(texts) or "No paragraph has any of these words."

        return ToolEpisode(
            [Tool(search.spec, search_here)],
            lambda: {"queries": list(queries), "found": list(retrieved), "supporting": supporting},
        )

    def _task(self, question: Question) -> Task:
        """Return a question as a task with a tool."""
        return replace(
            super()._task(question), demonstration=self._demonstration(question), tools=(search.spec,)
        )

    def _paragraphs(self, question: Question) -> Sequence[Paragraph]:
        """Return no paragraphs: the policy searches them."""
        return ()

    def _demonstration(self, question: Question) -> tuple[AssistantMessage, ...]:
        """Return the demonstration: search the question, then each missing supporting paragraph; answer."""
        queries = [question.text]
        retrieved = set(self._search(question.text))
        for passage in _supporting(question):
            if passage not in retrieved:
                queries.append(self._query(passage))
                retrieved |= set(self._search(queries[-1]))
        searches = [
            AssistantMessage(calls=(ToolCall(search.spec.name, {"query": query}),)) for query in queries
        ]
        return (*searches, AssistantMessage(format_answer(question.answers[0], self.config.answer_format)))

    def _search(self, query: str) -> Sequence[Passage]:
        return self.index.search(query, self.config.search_results)

    def _query(self, passage: Passage) -> str:
        """Return the shortest query that finds a passage: its title and words of its text."""
        words = passage.text.split()
        queries = [" ".join([passage.title, *words[:count]]) for count in ADDED_QUERY_WORDS]
        return next((query for query in queries if passage in self._search(query)), passage.title)


def support(rollout: Rollout, task: Task) -> float:
    """Return the share of the supporting paragraphs that the searches returned, in [0, 1]."""
    supporting = set(rollout.outcome["supporting"])
    return len(supporting.intersection(rollout.outcome["found"])) / len(supporting)


def _supporting(question: Question) -> list[Passage]:
    """Return the supporting paragraphs."""
    return [Passage(p.title, p.text) for p in question.paragraphs if p.supporting]
