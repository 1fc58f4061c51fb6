"""Names that come from a file, and become the name of another."""


def is_file_name(name: str) -> bool:
    """Return whether a text is one component of a path, without control or bidirectional characters."""
    return name.isprintable() and name not in ("", ".", "..") and not set(name) & {"/", "\\"}
