"""The tools of tau-bench retail that change orders and users."""

from collections.abc import Sequence
from typing import Any

from truing.envs.taubench.store import Record, Store
from truing.envs.tools import ToolError

REASONS = ("no longer needed", "ordered by mistake")


class Orders:
    """What an agent can do, within the rules that the shop itself keeps."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def cancel_pending_order(self, order_id: str, reason: str) -> Record:
        """Cancel, and refund what was paid."""
        order = self.store.order(order_id, "pending")
        if reason not in REASONS:
            raise ToolError(f"the reason cannot be {reason!r}, only {' or '.join(REASONS)}")
        refunds = [{**payment, "transaction_type": "refund"} for payment in order["payment_history"]]
        for refund in refunds:
            self.store.pay(order["user_id"], refund["payment_method_id"], -refund["amount"])
        history = [*order["payment_history"], *refunds]
        return self.store.update_order(
            order_id, status="cancelled", cancel_reason=reason, payment_history=history
        )

    def modify_pending_order_address(self, order_id: str, **address: str) -> Record:
        """Ship to another address."""
        self.store.order(order_id, "pending")
        return self.store.update_order(order_id, address=address)

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Pay by another method, and refund the first."""
        order = self.store.order(order_id, "pending")
        if len(order["payment_history"]) != 1:
            raise ToolError(f"order {order_id} has more than one payment")
        (payment,) = order["payment_history"]
        amount, former = payment["amount"], payment["payment_method_id"]
        if payment_method_id == former:
            raise ToolError(f"order {order_id} is already paid by {former}")
        self.store.check_funds(order["user_id"], payment_method_id, amount)
        self.store.pay(order["user_id"], payment_method_id, amount)
        self.store.pay(order["user_id"], former, -amount)
        history = [payment, _transaction(amount, payment_method_id), _transaction(-amount, former)]
        return self.store.update_order(order_id, payment_history=history)

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Put other variants in place of items, and pay the difference."""
        order = self.store.order(order_id, "pending")
        swaps = self._swaps(order, item_ids, new_item_ids)
        difference = _difference(order, swaps)
        self.store.check_funds(order["user_id"], payment_method_id, difference)
        self.store.pay(order["user_id"], payment_method_id, difference)
        items = [
            {**item, **{key: swaps[i][key] for key in ("item_id", "price", "options")}}
            if i in swaps
            else item
            for i, item in enumerate(order["items"])
        ]
        history = [*order["payment_history"], _transaction(difference, payment_method_id)]
        return self.store.update_order(
            order_id, status="pending (items modified)", items=items, payment_history=history
        )

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Ask for other variants of items; nothing is paid yet."""
        order = self.store.order(order_id, "delivered")
        difference = _difference(order, self._swaps(order, item_ids, new_item_ids))
        self.store.check_funds(order["user_id"], payment_method_id, difference)
        return self.store.update_order(
            order_id,
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
            exchange_payment_method_id=payment_method_id,
            exchange_price_difference=difference,
        )

    def return_delivered_order_items(
        self, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Ask to give items back; the refund comes later."""
        order = self.store.order(order_id, "delivered")
        method = self.store.payment_method(order["user_id"], payment_method_id)
        paid_by = order["payment_history"][0]["payment_method_id"]
        if payment_method_id != paid_by and method["source"] != "gift_card":
            raise ToolError(f"a refund goes to {paid_by}, which paid, or to a gift card")
        _places(order, item_ids)
        return self.store.update_order(
            order_id,
            status="return requested",
            return_items=sorted(item_ids),
            return_payment_method_id=payment_method_id,
        )

    def modify_user_address(self, user_id: str, **address: str) -> Record:
        """Move a user."""
        self.store.users[user_id] = {**self.store.user(user_id), "address": address}
        return self.store.users[user_id]

    def _swaps(self, order: Record, item_ids: Sequence[str], new_item_ids: Sequence[str]) -> dict[int, Any]:
        """Place in the order → the variant that shall stand there."""
        if len(item_ids) != len(new_item_ids):
            raise ToolError(f"{len(item_ids)} items cannot become {len(new_item_ids)}")
        swaps: dict[int, Any] = {}
        for place, new_id in zip(_places(order, item_ids), new_item_ids, strict=True):
            variants = self.store.product(order["items"][place]["product_id"])["variants"]
            if new_id not in variants or not variants[new_id]["available"]:
                raise ToolError(f"{new_id!r} is not an available item of the same product")
            swaps[place] = variants[new_id]
        return swaps


def _places(order: Record, item_ids: Sequence[str]) -> list[int]:
    """Where items stand in an order; an item that is named twice must be there twice."""
    free = list(enumerate(item["item_id"] for item in order["items"]))
    places: list[int] = []
    for item_id in item_ids:
        found = next((pair for pair in free if pair[1] == item_id), None)
        if found is None:
            raise ToolError(f"order {order['order_id']} has no item {item_id!r} (left)")
        free.remove(found)
        places.append(found[0])
    return places


def _difference(order: Record, swaps: dict[int, Any]) -> float:
    """What the new items cost more than the old, to the cent."""
    return round(sum(new["price"] - order["items"][place]["price"] for place, new in swaps.items()), 2)


def _transaction(amount: float, method_id: str) -> Record:
    """A line of a payment history; a negative amount is a refund."""
    kind = "payment" if amount > 0 else "refund"
    return {"transaction_type": kind, "amount": abs(amount), "payment_method_id": method_id}
