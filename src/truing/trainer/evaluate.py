"""Evaluations of a run: proven, and logged with every answer."""

from dataclasses import asdict, replace
from functools import partial

from truing.analysis.estimate import pass_at_json
from truing.analysis.evaluation import Evaluation
from truing.instrumentation.evaluation_check import prove_evaluated
from truing.trainer.collector import logged_publication
from truing.trainer.run_context import RunContext


def evaluate(run: RunContext, name: str, stage: str, step: int) -> Evaluation:
    """Evaluate the policy after ``step`` steps of a stage; log and return the evaluation."""
    session, event_log = run.session, run.event_log
    with logged_publication(event_log, stage, step):
        session.publish(run.weights_version(stage, step))
    event_log.notify("evaluating", {"name": name, "tasks": run.recipe.eval.tasks})
    evaluation = session.evaluate(
        name,
        partial(prove_evaluated, session),
        lambda ended, answers: event_log.notify("evaluated", {"ended": ended, "answers": answers}),
    )
    evaluation = replace(evaluation, stage=stage, step=step)
    session.engine.release_memory()
    estimate, pass_at = asdict(evaluation.estimate()), pass_at_json(evaluation.pass_at())
    event_log.log("eval", **asdict(evaluation), estimate=estimate, pass_at=pass_at)
    return evaluation
