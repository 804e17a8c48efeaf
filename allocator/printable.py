"""Text of others, fit to be shown: in a terminal, in a line of a log, in a row of a table.

Who makes objects chooses what stands in them, and it is shown to somebody else. An escape character there moves the
cursor of the reader's terminal, a newline makes a row of a table that is none, and a mark of direction turns the text
around.
"""


def printable(text: str) -> str:
    r"""The text with every character that is not to be seen written as an escape, such as ``\x1b`` or ``\u202e``.

    These are control characters (newlines and those of C1 too), marks of direction and of format, halves of
    characters, separators other than the space, and what Unicode has not assigned. Backslashes stay as they are:
    what is shown is for people, and is not read back.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines; those after the first are set in, and so are not taken for lines of ours."""
    return "\n  ".join(map(printable, text.split("\n")))
