"""Rows of data sets as conversations: the one reader of messages, tools and template variables of a row."""

from truing.envs.conversations.notes import column_notes, row_notes
from truing.envs.conversations.read import Conversation, is_sharegpt, read_row

__all__ = ["Conversation", "column_notes", "is_sharegpt", "read_row", "row_notes"]
