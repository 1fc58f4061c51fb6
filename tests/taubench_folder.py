"""A small shop of our own in the form of tau-bench's data, which lies in ``data/tau_bench``."""

from folders import WRITTEN, rows

ADDRESS = {
    "address1": "1 Elm",
    "address2": "",
    "city": "York",
    "country": "USA",
    "state": "NY",
    "zip": "10001",
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


def tool(name, parameters):
    """A published tool: lists of items are arrays, all else is text."""
    kinds = {each: {"type": "array" if each.endswith("_ids") else "string"} for each in parameters}
    schema = {"type": "object", "properties": kinds, "required": parameters}
    return {"domain": "retail", "function": {"name": name, "description": name, "parameters": schema}}


FILES = {file.stem: rows(file) for file in (WRITTEN / "tau_bench").glob("*.jsonl")}
