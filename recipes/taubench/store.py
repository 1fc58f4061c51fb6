"""The shop of tau-bench retail: users, orders and products, in one episode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truing.envs.tools import ToolError

Record = Mapping[str, Any]
"""A user, an order or a product. A record is replaced, never changed in place."""


@dataclass(frozen=True)
class InitialState:
    """The data before any action."""

    users: Mapping[str, Record]
    orders: Mapping[str, Record]
    products: Mapping[str, Record]


class Store:
    """The data of one episode; it shares the records that it does not replace."""

    def __init__(self, start: InitialState) -> None:
        self.start = start
        self.users, self.orders = dict(start.users), dict(start.orders)

    def user(self, user_id: str) -> Record:
        """A user by id."""
        return _get(self.users, user_id, "user")

    def order(self, order_id: str, status: str | None = None, done: str = "") -> Record:
        """An order by id; where a status is given, it must have that for something to be ``done`` to it."""
        order = _get(self.orders, order_id, "order")
        if status is not None and order["status"] != status:
            raise ToolError(f"non-{status} order cannot be {done}")
        return order

    def product(self, product_id: str) -> Record:
        """A product by id."""
        return _get(self.start.products, product_id, "product")

    def payment_method(self, user_id: str, method_id: str) -> Record:
        """A payment method of a user."""
        return _get(self.user(user_id)["payment_methods"], method_id, "payment method")

    def check_funds(self, user_id: str, method_id: str, amount: float, what: str) -> None:
        """Reject to pay for ``what`` with a gift card that does not cover it."""
        method = self.payment_method(user_id, method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ToolError(f"insufficient gift card balance to pay for the {what}")

    def pay(self, user_id: str, method_id: str, amount: float) -> None:
        """Take an amount from a gift card, or give it back where it is negative; banks do so later."""
        method = self.payment_method(user_id, method_id)
        if method["source"] != "gift_card":
            return
        user = self.user(user_id)
        paid = {**method, "balance": round(method["balance"] - amount, 2)}
        self.users[user_id] = {**user, "payment_methods": {**user["payment_methods"], method_id: paid}}

    def update_order(self, order_id: str, **fields: Any) -> Record:
        """Set fields of an order, and return it."""
        self.orders[order_id] = {**self.orders[order_id], **fields}
        return self.orders[order_id]

    def changes(self) -> dict[str, Any]:
        """The users and orders that are not as they were; nothing else can change."""
        parts = {
            "users": _changed(self.start.users, self.users),
            "orders": _changed(self.start.orders, self.orders),
        }
        return {name: part for name, part in parts.items() if part}


def _get(records: Mapping[str, Record], key: str, what: str) -> Record:
    """A record, or word to the model that there is none."""
    if key not in records:
        raise ToolError(f"{what} not found")
    return records[key]


def _changed(before: Mapping[str, Record], after: Mapping[str, Record]) -> dict[str, Record]:
    """The records that differ, as they are now."""
    return {key: record for key, record in after.items() if record != before[key]}
