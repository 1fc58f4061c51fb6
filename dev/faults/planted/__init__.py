"""Planted faults by family; ``FAULTS`` has them all by name."""

from importlib import import_module
from pkgutil import iter_modules

from dev.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in sorted(
        (
            value
            for module in iter_modules(__path__)
            for value in vars(import_module(f"{__name__}.{module.name}")).values()
            if isinstance(value, Fault)
        ),
        key=lambda fault: fault.name,
    )
}
