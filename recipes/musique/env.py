"""Multi-hop question answering: MuSiQue, HotpotQA, 2WikiMultihopQA."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from truing.config import FrozenModel
from truing.envs.base import Split, hash_fraction
from truing.envs.data.rows import parse_spec, read_rows
from truing.envs.data.usable_rows import row_name, usable_rows
from truing.errors import DataError
from truing.rewards import (
    AnswerFormat,
    RewardFn,
    Rewards,
    exact_match,
    extract_answer,
    f1,
    follows_format,
    format_answer,
)
from truing.types.rollout import Rollout, Task

from .rows import Paragraph, Question, read_question

Weight = Annotated[float, Field(ge=0)]


class MusiqueConfig(FrozenModel):
    """The questions, their split, prompt and rewards."""

    data: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """One spec or several, pooled: a file or folder, or "hub/id,config,split"; each may end in [:100]."""
    mode: Literal["paragraphs", "search"] = "paragraphs"
    """The prompt holds paragraphs, or the policy has a tool that searches the paragraphs of all questions."""
    paragraphs: Literal["supporting", "all"] = "supporting"
    """Which paragraphs the prompt holds, in the order of the data; in search mode it holds none."""
    search_results: Annotated[int, Field(ge=1)] = 3
    """Maximum number of paragraphs per search."""
    paragraph_chars: Annotated[int, Field(ge=1)] = 600
    """Maximum number of characters per paragraph in a search; the result states how many are cut."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of questions for evaluation: those whose SHA-256 of (seed, text), in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other questions for evaluation."""
    train_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of training questions: those with the smallest hash."""
    eval_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of evaluation questions: those with the smallest hash."""
    answer_format: AnswerFormat = "line"
    """Where the answer is: on the only "line" of the response, or in a closing "tag"."""
    system: str = "Answer the question from the paragraphs, in a few words."
    """The system message; empty for none."""
    f1_weight: Weight = 1.0
    """Weight of the word overlap with the best answer."""
    em_weight: Weight = 0.0
    """Weight of the exact match with an answer."""
    format_weight: Weight = 0.0
    """Weight of the correct format."""
    support_weight: Weight = 0.0
    """Weight of the share of supporting paragraphs that the searches returned; 0 without searches."""

    @field_validator("support_weight")
    @classmethod
    def _searched(cls, weight: float, earlier: ValidationInfo) -> float:
        """Reject a search weight without searches."""
        if weight and earlier.data.get("mode") == "paragraphs":
            raise ValueError('0, or set env.mode = "search"')
        return weight


class Musique:
    """Questions whose answer takes several paragraphs, graded by SQuAD-style F1 and exact match."""

    Config = MusiqueConfig

    def __new__(cls, config: MusiqueConfig) -> "Musique":
        """In search mode the subclass that searches: it alone opens episodes."""
        if config.mode == "paragraphs":
            return super().__new__(cls)
        from .search import MusiqueSearch

        return object.__new__(MusiqueSearch)

    def __init__(self, config: MusiqueConfig) -> None:
        self.config = config
        self.rewards: Rewards = {
            "f1": (_answer_reward(f1, config.answer_format), config.f1_weight),
            "em": (_answer_reward(exact_match, config.answer_format), config.em_weight),
            "format": (_format_reward(config.answer_format), config.format_weight),
        }
        self.questions, self.notes = _load([config.data] if isinstance(config.data, str) else config.data)
        hashed = [(hash_fraction("split", config.seed, _one_text(q)), self._task(q)) for q in self.questions]
        # in hash order a limit takes from every data set, and a larger share keeps what was in a smaller one
        hashed.sort(key=lambda pair: (pair[0], pair[1].task_id))
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": [task for share, task in hashed if share >= config.eval_share][: config.train_limit],
            "eval": [task for share, task in hashed if share < config.eval_share][: config.eval_limit],
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the questions of a split, by ascending hash."""
        return self._tasks[split]

    def _task(self, question: Question) -> Task:
        """Return a question as a task."""
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return Task(
            task_id=question.task_id,
            family=question.family,
            messages=(*system, {"role": "user", "content": self._prompt(question)}),
            answer=question.answers,
            demonstration=format_answer(question.answers[0], self.config.answer_format),
        )

    def _prompt(self, question: Question) -> str:
        """Return paragraphs, then the question, without truncation: a long prompt is an error elsewhere."""
        ask = "Answer:" if self.config.answer_format == "line" else "End with <answer>your answer</answer>."
        paragraphs = [f"{p.title}: {p.text}" for p in self._paragraphs(question)]
        return "\n\n".join([*paragraphs, f"Question: {question.text}", ask])

    def _paragraphs(self, question: Question) -> Sequence[Paragraph]:
        """Return the paragraphs of the prompt."""
        return [p for p in question.paragraphs if p.supporting or self.config.paragraphs == "all"]


def _load(specs: Iterable[str]) -> tuple[list[Question], tuple[str, ...]]:
    """Return the usable questions of all specs, and a note per reason why others were skipped."""
    rows = [(spec, row) for spec in specs for row in read_rows(parse_spec(spec))]
    read = usable_rows(
        rows,
        lambda pair: (pair[0], read_question(pair[1])),
        name=lambda pair: row_name(pair[1]),
        key=lambda pair: pair[1].task_id if isinstance(pair[1], Question) else object(),
    )
    questions = [question for _, question in read.converted if isinstance(question, Question)]
    skipped = Counter(
        f"{spec}: skipped rows {reason}" for spec, reason in read.converted if isinstance(reason, str)
    )
    notes = (*(f"{note}: {count}" for note, count in skipped.items()), *read.notes())
    if not questions:
        raise DataError(
            "no row of the data can be used", got="; ".join(notes), expected="questions with paragraphs"
        )
    return questions, notes


def _one_text(question: Question) -> str:
    """Return the question's text without case and spacing: duplicates under two ids stay in one split."""
    return " ".join(question.text.casefold().split())


def _answer_reward(score: Callable[[str, Sequence[str]], float], answer_format: AnswerFormat) -> RewardFn:
    """Return a reward that scores the answer in a response; a response without one gets 0."""

    def answer_reward(rollout: Rollout, task: Task) -> float:
        answer = extract_answer(rollout.text, answer_format)
        return 0.0 if answer is None else score(answer, task.answer)

    return answer_reward


def _format_reward(answer_format: AnswerFormat) -> RewardFn:
    """Return a reward of 1.0 for a response in the right format."""

    def format_reward(rollout: Rollout, task: Task) -> float:
        return float(follows_format(rollout.text, answer_format))

    return format_reward
