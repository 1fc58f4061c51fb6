"""The tools of tau-bench retail that change nothing."""

import ast
import operator
from collections.abc import Callable

from truing.envs.taubench.store import Record, Store
from truing.envs.tools import ToolError

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST = 500
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
        wanted = (first_name.lower(), last_name.lower(), zip)

        def fits(user: Record) -> bool:
            name = user["name"]
            return (name["first_name"].lower(), name["last_name"].lower(), user["address"]["zip"]) == wanted

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
        products = self.store.start.products.items()
        return dict(sorted((product["name"], product_id) for product_id, product in products))

    def calculate(self, expression: str) -> str:
        """The value of an expression, to the cent."""
        if len(expression) > LONGEST:
            raise ToolError(f"an expression has {LONGEST} characters at most")
        try:
            return str(round(_value(ast.parse(expression.strip(), mode="eval").body), 2))
        except (SyntaxError, ArithmeticError, ValueError) as error:
            raise ToolError(f"{expression!r} cannot be calculated: {error}") from error

    def think(self, thought: str) -> str:
        """Nothing happens: the thought is in the transcript."""
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        """Nothing changes: a human would take over."""
        return "Transfer successful."

    def _only(self, fits: Callable[[Record], bool]) -> str:
        """The first user that fits."""
        for user_id, user in self.store.users.items():
            if fits(user):
                return user_id
        raise ToolError("there is no such user")


def _value(node: ast.expr) -> float:
    """The value of a parsed expression of numbers, + - * / and parentheses."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("only numbers, + - * / and parentheses are allowed")
