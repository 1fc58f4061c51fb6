"""A small shop of our own in the form of tau-bench's data."""

ADDRESS = {
    "address1": "1 Elm",
    "address2": "",
    "city": "York",
    "country": "USA",
    "state": "NY",
    "zip": "10001",
}
METHODS = {
    "gift_card_1": {"source": "gift_card", "id": "gift_card_1", "balance": 20},
    "paypal_2": {"source": "paypal", "id": "paypal_2"},
    "credit_card_3": {"source": "credit_card", "id": "credit_card_3"},
}
USER = {
    "name": {"first_name": "Ada", "last_name": "Fox"},
    "address": ADDRESS,
    "email": "ada@mail.com",
    "payment_methods": METHODS,
    "orders": ["#P", "#G", "#D"],
}
PRICES = {"red": 10.1, "blue": 15.3, "gold": 99.0, "grey": 1.0}
"""The variants of the one product; grey is not available."""
PRODUCT = {
    "name": "Mug",
    "product_id": "mug",
    "variants": {
        colour: {
            "item_id": colour,
            "options": {"colour": colour},
            "available": colour != "grey",
            "price": price,
        }
        for colour, price in PRICES.items()
    },
}
TOOLS = {
    "find_user_id_by_email": ["email"],
    "find_user_id_by_name_zip": ["first_name", "last_name", "zip"],
    "get_order_details": ["order_id"],
    "list_all_product_types": [],
    "calculate": ["expression"],
    "transfer_to_human_agents": ["summary"],
    "cancel_pending_order": ["order_id", "reason"],
    "modify_pending_order_address": ["order_id", *ADDRESS],
    "modify_pending_order_payment": ["order_id", "payment_method_id"],
    "modify_pending_order_items": ["order_id", "item_ids", "new_item_ids", "payment_method_id"],
    "exchange_delivered_order_items": ["order_id", "item_ids", "new_item_ids", "payment_method_id"],
    "return_delivered_order_items": ["order_id", "item_ids", "payment_method_id"],
    "modify_user_address": ["user_id", *ADDRESS],
}


def order(order_id, status, method, *colours):
    """An order of mugs that is paid."""
    paid = round(sum(PRICES[colour] for colour in colours), 2)
    return {
        "order_id": order_id,
        "user_id": "ada",
        "address": ADDRESS,
        "items": [{"product_id": "mug", **PRODUCT["variants"][colour]} for colour in colours],
        "status": status,
        "payment_history": [{"transaction_type": "payment", "amount": paid, "payment_method_id": method}],
    }


ORDERS = [
    order("#P", "pending", "paypal_2", "red", "red", "blue"),
    order("#G", "pending", "gift_card_1", "red"),
    order("#D", "delivered", "credit_card_3", "red", "blue"),
]


def tool(name, parameters):
    """A published tool: lists of items are arrays, all else is text."""
    kinds = {each: {"type": "array" if each.endswith("_ids") else "string"} for each in parameters}
    schema = {"type": "object", "properties": kinds, "required": parameters}
    return {"domain": "retail", "function": {"name": name, "description": name, "parameters": schema}}


def task(number, actions, outputs=(), domain="retail"):
    """A task of a customer of its own, so that both splits get some."""
    return {
        "id": f"t{number}",
        "domain": domain,
        "user_id": f"user{number}",
        "instruction": f"You are Ada, for the {number}th time.",
        "actions": [{"name": name, "kwargs": kwargs} for name, kwargs in actions],
        "outputs": list(outputs),
    }


CANCEL = ("cancel_pending_order", {"order_id": "#G", "reason": "no longer needed"})
FILES = {
    "tools": [tool(name, parameters) for name, parameters in TOOLS.items()],
    "retail_db_users": [{"key": "ada", "value": USER}],
    "retail_db_orders": [{"key": each["order_id"], "value": each} for each in ORDERS],
    "retail_db_products": [{"key": "mug", "value": PRODUCT}],
    "tasks": [
        *(task(number, [CANCEL], ["1,010.10", "Mug"]) for number in range(8)),
        task(8, [("transfer_to_human_agents", {"summary": "?"})]),
        task(9, [("book_flight", {})], domain="airline"),
    ],
}
