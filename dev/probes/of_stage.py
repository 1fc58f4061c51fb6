"""The probes of a recipe's stage, for ``truing verify``."""

from dev.probes.run_probes import PROBES, run_probes
from dev.probes.small_trainer import POLICY_ALGOS


def probe_stage(stage: str, objective: str) -> tuple[list[str], str]:
    """Run the probes of a stage's algorithm; return a line for each wrong number, and what was run."""
    algo = objective if stage == "grpo" and objective in POLICY_ALGOS and objective != "ppo" else stage
    outcomes = list(run_probes(PROBES, [algo]))
    wrong = [
        f"{outcome.probe} of {algo}: {finding.name} is {finding.got:g}, not {finding.expected}"
        for outcome in outcomes
        for finding in outcome.findings
        if not finding.holds
    ]
    return wrong, f"{len(outcomes)} probes of {algo}"
