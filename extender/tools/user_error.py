"""The error of what a user has asked for and cannot have: a command prints it as a message, without a traceback."""


class UserError(Exception):
    """What a user asked for cannot be done.

    Attributes:
        problems: each names what the user has to change.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))
