"""The mail of WorkBench, and its directory of addresses."""

from collections.abc import Sequence

from truing.envs.tools import ToolError

from .tables import Row, Table, contains, moment

NOW = "2023-11-30 00:00:00"
"""The time at which all tasks play."""


class Mail:
    """Six tools over the mails."""

    def __init__(self, emails: Table[str]) -> None:
        self.emails = emails

    def get_email_information_by_id(self, email_id: str, field: str) -> Row:
        """One field of a mail."""
        return self.emails.field(email_id, field)

    def search_emails(
        self, query: str = "", date_min: str | None = None, date_max: str | None = None
    ) -> list[Row]:
        """The mails with all words of the query, the newest first, so that a cut loses old ones."""
        first = moment(date_min).date() if date_min else None
        last = moment(date_max).date() if date_max else None

        def keep(email: Row) -> bool:
            day = moment(email["sent_datetime"]).date()
            text = f"{email['subject']} {email['body']} {email['sender/recipient']}"
            in_time = (first is None or day >= first) and (last is None or day <= last)
            return in_time and all(contains(text, word) for word in query.split())

        return sorted(self.emails.search(keep), key=lambda email: email["sent_datetime"], reverse=True)

    def send_email(self, recipient: str, subject: str, body: str) -> str:
        """Send a new mail."""
        self._send(recipient, subject, body)
        return "Email sent successfully."

    def delete_email(self, email_id: str) -> str:
        """Remove a mail."""
        self.emails.remove(email_id)
        return "Email deleted successfully."

    def forward_email(self, email_id: str, recipient: str) -> str:
        """Send a mail on."""
        email = self.emails.row(email_id)
        self._send(recipient, f"FW: {email['subject']}", email["body"])
        return "Email forwarded successfully."

    def reply_email(self, email_id: str, body: str) -> str:
        """Answer the sender of a mail."""
        email = self.emails.row(email_id)
        self._send(email["sender/recipient"], email["subject"], body)
        return "Email replied successfully."

    def _send(self, recipient: str, subject: str, body: str) -> None:
        """Put a mail into the outbox."""
        if "@" not in recipient or "." not in recipient:
            raise ToolError(f"{recipient!r} is not an email address")
        email_id = self.emails.next_id()  # WorkBench pads the ids of other tables with zeros, and not these
        email = {
            "email_id": email_id,
            "inbox/outbox": "outbox",
            "sender/recipient": recipient.lower(),
            "subject": subject,
            "sent_datetime": NOW,
            "body": body,
        }
        self.emails.add(email_id, email)


class Directory:
    """One tool over the addresses of the staff."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses

    def find_email_address(self, name: str) -> list[str]:
        """The addresses that hold a name; a first name is enough."""
        query = name.strip().replace(" ", ".")
        matches = [address for address in self.addresses if contains(address, query)]
        if not matches:
            raise ToolError(f"nobody is called {name!r}")
        return matches
