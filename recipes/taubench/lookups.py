"""The tools of tau-bench retail that change nothing."""

import ast
import operator
import warnings
from collections.abc import Callable
from typing import Any

from truing.envs.tools import ToolError

from .store import Record, Store

ALLOWED = frozenset("0123456789+-*/(). ")
"""What an expression may be written with."""

MAX_BITS = 100_000
"""Of a power; no float is so large, and few quotients need it."""

MAX_EXPRESSION_CHARS = 500
"""Characters of an expression; a longer one could be nested too deeply to be read."""


class Lookups:
    """What an agent can find out."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def find_user_id_by_email(self, email: str) -> str:
        """The user with an address."""
        return self._only(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """The user with a name and zip code."""
        expected = (first_name.lower(), last_name.lower(), zip)

        def fits(user: Record) -> bool:
            name = user["name"]
            return (name["first_name"].lower(), name["last_name"].lower(), user["address"]["zip"]) == expected

        return self._only(fits)

    def get_user_details(self, user_id: str) -> Record:
        """All of a user."""
        return self.store.user(user_id)

    def get_order_details(self, order_id: str) -> Record:
        """All of an order."""
        return self.store.order(order_id)

    def get_product_details(self, product_id: str) -> Record:
        """All of a product."""
        return self.store.product(product_id)

    def list_all_product_types(self) -> dict[str, str]:
        """The id of each product by its name, sorted."""
        products = self.store.start.products.values()
        return dict(sorted((product["name"], product["product_id"]) for product in products))

    def calculate(self, expression: str) -> str:
        """The value of an expression, to the cent; an error has Python's text."""
        if not set(expression) <= ALLOWED:
            raise ToolError("invalid characters in expression")
        if len(expression) > MAX_EXPRESSION_CHARS:
            raise ToolError(f"an expression has {MAX_EXPRESSION_CHARS} characters at most")
        try:
            with warnings.catch_warnings(action="ignore"):  # Python warns of 2(3); the model gets the error
                tree = ast.parse(expression.strip(), "<string>", "eval")
            return str(round(float(_value(tree.body)), 2))
        except (SyntaxError, ArithmeticError, TypeError, ValueError) as error:
            raise ToolError(str(error)) from error

    def think(self, thought: str) -> str:
        """Nothing happens: the thought is in the transcript."""
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        """Nothing changes: a human would take over."""
        return "Transfer successful"

    def _only(self, fits: Callable[[Record], bool]) -> str:
        """The first user that fits."""
        for user_id, user in self.store.users.items():
            if fits(user):
                return user_id
        raise ToolError("user not found")


def _value(node: ast.expr) -> Any:
    """The value of a parsed expression, as Python has it."""
    match node:
        case ast.Constant(value=number):
            return number
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left), _value(right))
        case ast.Tuple():  # (), since there is no comma
            return ()
        case ast.Call(func=func):  # 2(3)
            raise TypeError(f"{type(_value(func)).__name__!r} object is not callable")
    raise ValueError("only numbers, operators and parentheses are allowed")


def _power(base: Any, exponent: Any) -> Any:
    """A power, unless it would take hours."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS:
        raise OverflowError("int too large to convert to float")
    return base**exponent


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
