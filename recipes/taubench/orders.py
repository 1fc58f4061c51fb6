"""The tools of tau-bench retail that change orders and users.

Checks, their order, their words and the rounding of amounts are those of the published shop
(https://github.com/sierra-research/tau-bench, ``tau_bench/envs/retail/tools``).
"""

from collections.abc import Sequence
from typing import Any

from truing.envs.tools import ToolError

from .store import Record, Store

REASONS = ("no longer needed", "ordered by mistake")
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
"""The fields of an address, in the order in which the shop writes them."""


class Orders:
    """What an agent can do, within the rules that the shop itself keeps."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def cancel_pending_order(self, order_id: str, reason: str) -> Record:
        """Cancel, and refund what was paid."""
        order = self.store.order(order_id, "pending", "cancelled")
        if reason not in REASONS:
            raise ToolError("invalid reason")
        refunds = [
            _transaction("refund", p["amount"], p["payment_method_id"]) for p in order["payment_history"]
        ]
        for refund in refunds:
            self.store.pay(order["user_id"], refund["payment_method_id"], -refund["amount"])
        history = [*order["payment_history"], *refunds]
        return self.store.update_order(
            order_id, status="cancelled", cancel_reason=reason, payment_history=history
        )

    def modify_pending_order_address(self, order_id: str, **address: str) -> Record:
        """Ship to another address."""
        self.store.order(order_id, "pending", "modified")
        return self.store.update_order(order_id, address={field: address[field] for field in ADDRESS})

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Pay by another method, and refund the first."""
        order = self.store.order(order_id, "pending", "modified")
        self.store.payment_method(order["user_id"], payment_method_id)
        first, *others = order["payment_history"]
        if others or first["transaction_type"] != "payment":
            raise ToolError("there should be exactly one payment for a pending order")
        amount, former = first["amount"], first["payment_method_id"]
        if payment_method_id == former:
            raise ToolError("the new payment method should be different from the current one")
        self.store.check_funds(order["user_id"], payment_method_id, amount, "order")
        self.store.pay(order["user_id"], payment_method_id, amount)
        self.store.pay(order["user_id"], former, -amount)
        swapped = [_transaction("payment", amount, payment_method_id), _transaction("refund", amount, former)]
        return self.store.update_order(order_id, payment_history=[first, *swapped])

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Put other variants in place of items, and pay the difference, which is not rounded here."""
        order = self.store.order(order_id, "pending", "modified")
        variants = self._variants(order, item_ids, new_item_ids)
        difference = _difference(order, item_ids, variants)
        self.store.check_funds(order["user_id"], payment_method_id, difference, "new item")
        self.store.pay(order["user_id"], payment_method_id, difference)
        kind = "payment" if difference > 0 else "refund"
        paid = _transaction(kind, abs(difference), payment_method_id)
        return self.store.update_order(
            order_id,
            items=_swapped(order["items"], item_ids, new_item_ids, variants),
            payment_history=[*order["payment_history"], paid],
            status="pending (item modified)",
        )

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Ask for other variants of items; nothing is paid yet."""
        order = self.store.order(order_id, "delivered", "exchanged")
        variants = self._variants(order, item_ids, new_item_ids)
        difference = round(_difference(order, item_ids, variants), 2)
        self.store.check_funds(order["user_id"], payment_method_id, difference, "price difference")
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
        order = self.store.order(order_id, "delivered", "returned")
        self.store.payment_method(order["user_id"], payment_method_id)
        paid_by = order["payment_history"][0]["payment_method_id"]
        if "gift_card" not in payment_method_id and payment_method_id != paid_by:
            raise ToolError("payment method should be either the original payment method or a gift card")
        if _missing(order, item_ids):
            raise ToolError("some item not found")
        return self.store.update_order(
            order_id,
            status="return requested",
            return_items=sorted(item_ids),
            return_payment_method_id=payment_method_id,
        )

    def modify_user_address(self, user_id: str, **address: str) -> Record:
        """Move a user."""
        moved = {field: address[field] for field in ADDRESS}
        self.store.users[user_id] = {**self.store.user(user_id), "address": moved}
        return self.store.users[user_id]

    def _variants(self, order: Record, item_ids: Sequence[str], new_item_ids: Sequence[str]) -> list[Record]:
        """The variants that items are to become."""
        missing = _missing(order, item_ids)
        if missing:
            raise ToolError(f"{missing[0]} not found")
        if len(item_ids) != len(new_item_ids):
            raise ToolError("the number of items to be exchanged should match")
        chosen: list[Record] = []
        for item_id, new_id in zip(item_ids, new_item_ids, strict=True):
            variants = self.store.product(_item(order["items"], item_id)["product_id"])["variants"]
            if new_id not in variants or not variants[new_id]["available"]:
                raise ToolError(f"new item {new_id} not found or available")
            chosen.append(variants[new_id])
        return chosen


def _missing(order: Record, item_ids: Sequence[str]) -> list[str]:
    """The items that an order does not have so often as they are named."""
    ordered = [item["item_id"] for item in order["items"]]
    return [item_id for item_id in item_ids if item_ids.count(item_id) > ordered.count(item_id)]


def _item(items: Sequence[Record], item_id: str) -> Record:
    """The first item of an id."""
    return next(item for item in items if item["item_id"] == item_id)


def _difference(order: Record, item_ids: Sequence[str], variants: Sequence[Record]) -> float:
    """What the new items cost more than the old, summed as the shop does."""
    difference = 0.0
    for item_id, variant in zip(item_ids, variants, strict=True):
        difference += variant["price"] - _item(order["items"], item_id)["price"]
    return difference


def _swapped(
    items: Sequence[Record], item_ids: Sequence[str], new_item_ids: Sequence[str], variants: Sequence[Record]
) -> list[Record]:
    """The items, one swapped after the other: an item that came in may be the first of its id to go."""
    swapped = list(items)
    for item_id, new_id, variant in zip(item_ids, new_item_ids, variants, strict=True):
        place = swapped.index(_item(swapped, item_id))
        new = {"item_id": new_id, "price": variant["price"], "options": variant["options"]}
        swapped[place] = {**swapped[place], **new}
    return swapped


def _transaction(kind: str, amount: float, method_id: str) -> dict[str, Any]:
    """A line of a payment history."""
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method_id}
