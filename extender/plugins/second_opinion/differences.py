"""Known differences of cel-python from CEL as Kubernetes has it. What meets a difference is not checked.

A selector that calls a function, or uses syntax, that cel-python does not have is not checked either; `Unchecked` says
which. A test has an expression for each difference.
"""

from enum import Enum


class Difference(Enum):
    """The known differences; each value completes "not checked: ..."."""

    BOOL_TEXT = "it writes booleans and doubles as Python does"
    TWO_TYPES = "it does not compare values of two types"
    TYPES = "it lacks an operation on values of these types"
    NEGATIVE_INDEX = "it counts a negative index from the end of a list"
    EMPTY_LIST = "it evaluates what is looked for in an empty list"
    ERROR_IN_MAP = "it takes an error as a value of a map"
    ERROR_IN_MACRO = "it lets an error within map, filter or exists_one end the whole selector"
    HAS_ERROR = "it takes each error in has() as a missing field"
    NOT_BOOL = "it takes values that are no booleans as conditions"
    MACRO_ON_TEXT = "it runs macros over the characters of a text"
    NULL_SIZE = "it takes the size of what has none"
    ZERO_DIVISOR = "it divides doubles by zero in another way"
    NUMBER_TEXT = "it reads numbers in a text as Python does"
    ROUNDING = "it converts large or negative doubles in another way"
    COMPUTED_QUANTITY = "Kubernetes treats sums and fractions of quantities in another way"
    LARGE_NUMBER = "it reads the least integer as one that is too large, and its sign"
    ESCAPES = "it reads escapes in a text in another way"
    SHADOWED = "it does not tell a variable of a macro from a function of the same name"


class Unchecked(Exception):  # noqa: N818 - it is no error: the answer is withheld
    """The second engine has no answer that may be compared.

    Attributes:
        why: a text that completes "not checked: ...".
    """

    def __init__(self, why: "Difference | str") -> None:
        super().__init__(why)
        self.why = why.value if isinstance(why, Difference) else why
