"""The website analytics of WorkBench."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from statistics import fmean

from truing.envs.tools import ToolError

from .tables import Row, Table, moment, one_of

PLOTTED = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOTS = ("bar", "line", "scatter", "histogram")
SOURCES = ("direct", "referral", "search engine", "social media")


class Analytics:
    """Six tools over the visits, which never change; the plots that were made are the state."""

    def __init__(self, visits: Sequence[Row], plots: Table[str]) -> None:
        self.visits, self.plots = visits, plots

    def get_visitor_information_by_id(self, visitor_id: str) -> list[Row]:
        """All visits of a visitor."""
        visits = [visit for visit in self.visits if visit["visitor_id"] == visitor_id]
        if not visits:
            raise ToolError(f"there is no visitor {visitor_id!r}")
        return visits

    def create_plot(self, time_min: str, time_max: str, value_to_plot: str, plot_type: str) -> str:
        """Note that a plot was made; nothing is drawn."""
        one_of("value_to_plot", value_to_plot, PLOTTED)
        one_of("plot_type", plot_type, PLOTS)
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.plots.add(self.plots.next_id(), {"file_path": path})
        return path

    def total_visits_count(self, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
        """Visits of each day."""
        return {day: len(visits) for day, visits in self._by_day(time_min, time_max).items()}

    def engaged_users_count(self, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
        """Visits of each day in which the user engaged."""
        by_day = self._by_day(time_min, time_max)
        return {day: sum(each["user_engaged"] == "True" for each in visits) for day, visits in by_day.items()}

    def traffic_source_count(
        self, traffic_source: str, time_min: str | None = None, time_max: str | None = None
    ) -> dict[str, int]:
        """Visits of each day from a source."""
        one_of("traffic_source", traffic_source, SOURCES)
        by_day = self._by_day(time_min, time_max)
        return {
            day: sum(each["traffic_source"] == traffic_source for each in visits)
            for day, visits in by_day.items()
        }

    def get_average_session_duration(
        self, time_min: str | None = None, time_max: str | None = None
    ) -> dict[str, float]:
        """Mean seconds of the sessions of each day that has some."""
        by_day = self._by_day(time_min, time_max)
        return {
            day: fmean(float(each["session_duration_seconds"]) for each in visits)
            for day, visits in by_day.items()
            if visits
        }

    def _by_day(self, time_min: str | None, time_max: str | None) -> dict[str, list[Row]]:
        """The visits of each day of a range, which is cut to the days that the data covers."""
        known = sorted({visit["date_of_visit"] for visit in self.visits})
        first = max(filter(None, [known[0], time_min and str(moment(time_min).date())]))
        last = min(filter(None, [known[-1], time_max and str(moment(time_max).date())]))
        by_day: dict[str, list[Row]] = {str(day): [] for day in _days(first, last)}
        for visit in self.visits:
            if visit["date_of_visit"] in by_day:
                by_day[visit["date_of_visit"]].append(visit)
        return by_day


def _days(first: str, last: str) -> Iterable[date]:
    """All days from first to last; none where last is before first."""
    start = date.fromisoformat(first)
    return (start + timedelta(days=i) for i in range((date.fromisoformat(last) - start).days + 1))
