"""The page of a rule: what it finds, how, an example, and the fix."""

import inspect

from truing.doctor.rule import KINDS, SECTIONS, TAINTS, Rule


def page(rule: Rule) -> str:
    """Return the page of a rule as Markdown."""
    parts = [f"# {rule.code} {rule.name}", rule.title]
    kind = f"{rule.kind}: {KINDS[rule.kind]}"
    parts.append(
        f"*Kind* {kind}. *Needs* {', '.join(rule.needs)}. *Taints* "
        f"{'; '.join(TAINTS[taint] for taint in rule.taints)}."
    )
    for name in SECTIONS:
        if name in ("References", "Fix"):
            continue
        parts.append(f"## {name}\n\n{rule.section(name)}")
    parts.append(f"## An example that fires\n\n```python\n{inspect.getsource(rule.example).strip()}\n```")
    for lookalike in rule.lookalikes:
        parts.append(f"And one that must not:\n\n```python\n{inspect.getsource(lookalike).strip()}\n```")
    parts.append(f"## Fix\n\n{rule.section('Fix')}")
    parts.append(f"## References\n\n{rule.section('References')}")
    return "\n\n".join(parts) + "\n"
