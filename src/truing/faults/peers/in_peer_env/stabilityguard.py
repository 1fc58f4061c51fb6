"""Run by the Python of StabilityGuard: updates on stdin, the alerts of its monitors on stdout."""

import json
import sys
from importlib.metadata import version
from typing import Any

from stabilityguard.core.spike_detector import SpikeDetector
from stabilityguard.rlhf.ppo_ratio import PPORatioMonitor
from stabilityguard.rlhf.reward_collapse import RewardCollapseDetector
from stabilityguard.rlhf.value_divergence import ValueDivergenceMonitor
from torch import tensor


def findings_of(updates: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return its alerts; their severities are those of the guard with these monitors."""
    ratios, rewards, values, spikes = (
        PPORatioMonitor(),
        RewardCollapseDetector(),
        ValueDivergenceMonitor(),
        SpikeDetector(),
    )
    findings = {}
    for update in updates:
        if update["new"] and update["old"]:
            seen = ratios.check_ratio(tensor(update["new"]), tensor(update["old"]))
            if seen["alert_triggered"]:
                findings.setdefault(("PPO ratio instability", "warning"), ", ".join(seen["alert_signals"]))
        if update["rewards"] and rewards.detect_collapse(tensor(update["rewards"])):
            findings.setdefault(("reward model collapse", "critical"), str(rewards.get_stats()))
        if update["values"] and values.check_divergence(
            *(tensor(update[name]) for name in ("values", "returns", "advantages"))
        ):
            findings.setdefault(("value function divergence", "critical"), str(values.get_stats()))
        if update["grad_norm"] is not None:
            spiked, spike, _ = spikes.check({"all weights": update["grad_norm"]}, set())
            if spiked:
                findings.setdefault(("gradient spike", "warning"), str(spike))
    return [
        {"finding": name, "severity": severity, "what": what} for (name, severity), what in findings.items()
    ]


print(json.dumps({"version": version("stabilityguard"), "said": findings_of(json.load(sys.stdin))}))
