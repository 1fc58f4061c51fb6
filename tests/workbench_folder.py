"""A small office of our own in the form of WorkBench's data, which lies in ``data/workbench``."""

from folders import WRITTEN, rows

TOOLS = {
    "calendar.search_events": ["query", "time_min", "time_max"],
    "calendar.create_event": ["event_name", "participant_email", "event_start", "duration"],
    "calendar.delete_event": ["event_id"],
    "calendar.update_event": ["event_id", "field", "new_value"],
    "email.search_emails": ["query", "date_min", "date_max"],
    "email.send_email": ["recipient", "subject", "body"],
    "email.forward_email": ["email_id", "recipient"],
    "analytics.create_plot": ["time_min", "time_max", "value_to_plot", "plot_type"],
    "analytics.total_visits_count": ["time_min", "time_max"],
    "analytics.engaged_users_count": ["time_min", "time_max"],
    "analytics.traffic_source_count": ["time_min", "time_max", "traffic_source"],
    "analytics.get_average_session_duration": ["time_min", "time_max"],
    "project_management.search_tasks": ["task_name", "assigned_to_email", "list_name", "due_date", "board"],
    "project_management.update_task": ["task_id", "field", "new_value"],
    "customer_relationship_manager.search_customers": [
        *("customer_name", "customer_email", "product_interest", "status", "assigned_to_email"),
        *("last_contact_date_min", "last_contact_date_max", "follow_up_by_min", "follow_up_by_max"),
    ],
    "customer_relationship_manager.update_customer": ["customer_id", "field", "new_value"],
    "company_directory.find_email_address": ["name"],
}
BO, ANN = "bo.ray@firm.com", "ann.lee@firm.com"


def table(columns, *cells):
    """Rows by the names of their columns."""
    return [dict(zip(columns.split(), row, strict=True)) for row in cells]


FILES = {file.stem: rows(file) for file in (WRITTEN / "workbench").glob("*.jsonl")}
