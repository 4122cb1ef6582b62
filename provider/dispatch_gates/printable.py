"""Text for people: parts of it may come from anybody's objects."""


def printable(text: str) -> str:
    """Return the text as it can be shown: no line breaks, and nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text)
