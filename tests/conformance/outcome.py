"""What running a case can end in besides passing or failing."""


class Skipped(Exception):  # noqa: N818  # it is no error
    """The case asks for something that this project does not have; the text says what."""
