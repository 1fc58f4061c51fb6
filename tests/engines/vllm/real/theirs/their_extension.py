"""The worker extension of another program, which fills vLLM's only slot for one."""


class TheirExtension:
    """As those of trainers that send weights themselves."""

    def their_method(self) -> dict[str, bool]:
        """Answer."""
        return {"theirs": True}
