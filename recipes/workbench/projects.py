"""The project board of WorkBench."""

from .tables import Row, Table, contains, one_of

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")


class Projects:
    """Five tools over the tasks of the team."""

    def __init__(self, tasks: Table[str]) -> None:
        self.tasks = tasks

    def get_task_information_by_id(self, task_id: str, field: str) -> Row:
        """One field of a task."""
        return self.tasks.field(task_id, field)

    def search_tasks(
        self,
        task_name: str = "",
        assigned_to_email: str = "",
        list_name: str = "",
        due_date: str = "",
        board: str = "",
    ) -> list[Row]:
        """The tasks that hold all the given texts."""
        filters = {
            "task_name": task_name,
            "assigned_to_email": assigned_to_email,
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        return self.tasks.search(lambda task: all(contains(task[k], text) for k, text in filters.items()))

    def create_task(
        self, task_name: str, assigned_to_email: str, list_name: str, due_date: str, board: str
    ) -> str:
        """Add a task."""
        task_id = self.tasks.next_id().zfill(8)
        task = {
            "task_id": task_id,
            "task_name": task_name,
            "assigned_to_email": assigned_to_email,
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        self.tasks.add(task_id, {field: self._checked(field, value) for field, value in task.items()})
        return task_id

    def delete_task(self, task_id: str) -> str:
        """Remove a task."""
        self.tasks.remove(task_id)
        return "Task deleted successfully."

    def update_task(self, task_id: str, field: str, new_value: str) -> str:
        """Set one field of a task."""
        self.tasks.change(task_id, field, self._checked(field, new_value))
        return "Task updated successfully."

    def _checked(self, field: str, value: str) -> str:
        """A value as the board keeps it: only its own lists, boards and people."""
        if field == "assigned_to_email":
            value = value.lower()
            one_of(field, value, sorted({task[field] for task in self.tasks.start.values()}))
        elif field in ("list_name", "board"):
            one_of(field, value, LISTS if field == "list_name" else BOARDS)
        return value
