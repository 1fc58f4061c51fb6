"""One office: the applications of WorkBench over the same data, their tools and their changes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truing.envs.tools import Tool
from truing.errors import DataError
from truing.types.message import ToolSpec

from .analytics import Analytics
from .calendar import Calendar
from .customers import Customers
from .mail import Directory, Mail
from .projects import Projects
from .tables import Row, Table


@dataclass(frozen=True)
class InitialState:
    """The data before any action."""

    events: Table[str]
    emails: Table[str]
    tasks: Table[str]
    customers: Table[str | None]
    visits: Sequence[Row]
    addresses: Sequence[str]


class Office:
    """The applications, each with its own tables."""

    def __init__(self, start: InitialState) -> None:
        events, emails = start.events.fresh(), start.emails.fresh()
        tasks, customers = start.tasks.fresh(), start.customers.fresh()
        plots: Table[str] = Table("plot_id", {})
        self.tables = {
            "calendar": events,
            "email": emails,
            "analytics": plots,
            "project_management": tasks,
            "customer_relationship_manager": customers,
        }
        self.applications: Mapping[str, object] = {
            "calendar": Calendar(events),
            "email": Mail(emails),
            "analytics": Analytics(start.visits, plots),
            "project_management": Projects(tasks),
            "customer_relationship_manager": Customers(customers),
            "company_directory": Directory(start.addresses),
        }

    def function(self, name: str) -> Callable[..., Any]:
        """Return the method that executes a tool, such as ``calendar.create_event``."""
        application, _, method = name.partition(".")
        bound = getattr(self.applications.get(application), method, None)
        if method.startswith("_") or not inspect.ismethod(bound):
            raise DataError("the data names a tool that WorkBench does not have", got=name)
        return bound

    def tools(self, specs: Sequence[ToolSpec]) -> list[Tool]:
        """Return the tools of those specs, in this office."""
        return [Tool(spec, self.function(spec.name)) for spec in specs]

    def outcome(self) -> dict[str, Any]:
        """Return the changes by application, without unchanged ones."""
        changes = {name: table.difference() for name, table in self.tables.items()}
        return {name: change for name, change in changes.items() if change}
