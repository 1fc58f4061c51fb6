"""A small office of our own in the form of WorkBench's data."""

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


FILES = {
    "tools": [
        {"name": name, "parameters": [{"name": each} for each in names], "docstring": "Gives {{}}."}
        for name, names in TOOLS.items()
    ],
    "email_addresses": table("email", [ANN], [BO]),
    "state_calendar_events": table(
        "event_id event_name participant_email event_start duration",
        ["00000007", "Stand-up", BO, "2023-12-01 09:00:00", "60"],
        ["00000003", "Review", BO, "2023-12-01 11:00:00", "30"],
    ),
    "state_emails": table(
        "email_id inbox/outbox sender/recipient subject sent_datetime body",
        ["00000000", "inbox", ANN, "Old plan", "2023-11-01 08:00:00", "Hi"],
        ["00000001", "inbox", ANN, "New plan", "2023-11-02 08:00:00", "Hi"],
    ),
    "state_project_tasks": table(
        "task_id task_name assigned_to_email list_name due_date board",
        ["00000000", "Paint", BO, "Backlog", "2023-12-04", "Design"],
    ),
    "state_customer_relationship_manager_data": table(
        "customer_id customer_name customer_email product_interest status assigned_to_email"
        " last_contact_date follow_up_by",
        *(
            [f"0000000{i}", "Kim", "kim@home.com", "Software", "Lead", BO, f"2023-11-0{i + 1}", ""]
            for i in range(6)
        ),
    ),
    "state_analytics_data": table(
        "date_of_visit session_duration_seconds traffic_source user_engaged",
        ["2023-11-01", "10", "direct", "True"],
        ["2023-11-01", "20", "referral", "False"],
        ["2023-11-03", "5", "direct", "True"],
    ),
    "tasks": [
        {
            "id": f"t{i}",
            "domain": "calendar",
            "query": f"Drop event {i}",
            "base_template": f"Drop {i}",
            "domains": ["calendar"],
            "ground_truth_calls": [{"tool": "calendar.delete_event", "args": {"event_id": "00000003"}}],
        }
        for i in range(8)
    ],
}
