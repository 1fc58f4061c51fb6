"""The customer records (CRM) of WorkBench."""

from collections.abc import Mapping

from .tables import Table, contains, one_of

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
Customer = Mapping[str, str | None]
SHOWN = 5
"""A search shows so many customers, as the tool's description says."""


class Customers:
    """Four tools over the customers."""

    def __init__(self, customers: Table[str | None]) -> None:
        self.customers = customers

    def search_customers(  # noqa: PLR0913 — the parameters of the published tool
        self,
        customer_name: str = "",
        customer_email: str = "",
        product_interest: str = "",
        status: str = "",
        assigned_to_email: str = "",
        last_contact_date_min: str = "",
        last_contact_date_max: str = "",
        follow_up_by_min: str = "",
        follow_up_by_max: str = "",
    ) -> list[Customer]:
        """The first customers that hold all the given texts, with dates in the given ranges."""
        filters = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        ranges = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }

        def keep(customer: Customer) -> bool:
            return all(contains(customer[field], text) for field, text in filters.items()) and all(
                _within(customer[field], *limits) for field, limits in ranges.items()
            )

        return self.customers.search(keep)[:SHOWN]

    def add_customer(  # noqa: PLR0913
        self,
        customer_name: str,
        assigned_to_email: str,
        status: str,
        customer_email: str | None = None,
        customer_phone: str | None = None,
        last_contact_date: str | None = None,
        product_interest: str | None = None,
        notes: str = "",
        follow_up_by: str | None = None,
    ) -> str:
        """Add a customer."""
        customer_id = self.customers.next_id().zfill(8)
        customer = {
            "customer_id": customer_id,
            "assigned_to_email": assigned_to_email,
            "customer_name": customer_name,
            "customer_email": customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        self.customers.add(
            customer_id, {k: v if v is None else self._checked(k, v) for k, v in customer.items()}
        )
        return customer_id

    def update_customer(self, customer_id: str, field: str, new_value: str) -> str:
        """Set one field of a customer."""
        self.customers.change(customer_id, field, self._checked(field, new_value))
        return "Customer updated successfully."

    def delete_customer(self, customer_id: str) -> str:
        """Remove a customer."""
        self.customers.remove(customer_id)
        return "Customer deleted successfully."

    def _checked(self, field: str, value: str) -> str:
        """A value as the records keep it: only the known states and products."""
        if field == "status":
            one_of(field, value, STATUSES)
        if field == "product_interest":
            one_of(field, value, PRODUCTS)
        return value.lower() if field == "assigned_to_email" else value


def _within(day: str | None, first: str, last: str) -> bool:
    """Whether a day as text lies in a range that may be open; ISO dates sort as text."""
    return not (first or last) or (day is not None and day >= first and (not last or day <= last))
