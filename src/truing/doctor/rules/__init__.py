"""One file per rule; ``RULES`` has them all by code."""

from importlib import import_module
from pkgutil import iter_modules

from truing.doctor.rule import Rule

RULES: dict[str, Rule] = {
    rule.code: rule
    for module_info in sorted(iter_modules(__path__), key=lambda module: module.name)
    for rule in [import_module(f"{__name__}.{module_info.name}").RULE]
}
