"""One file per fault; ``FAULTS`` has them all by name."""

from importlib import import_module
from pkgutil import iter_modules

from dev.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for module_info in sorted(iter_modules(__path__), key=lambda module: module.name)
    for fault in [import_module(f"{__name__}.{module_info.name}").FAULT]
}
