"""Label selectors (``metav1.LabelSelector``) as values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from allocator.tools import Fields

_OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement of a label selector; ``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements have to hold. A selector without requirements matches all labels."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet all requirements."""
        return all(_holds(requirement, labels) for requirement in self.requirements)

    def requiring(self, operator: str, keys: Iterable[str], labels: Mapping[str, str]) -> "LabelSelector":
        """The selector with a requirement more for each of some keys that labels have, with the value there."""
        more = (LabelRequirement(key, operator, (labels[key],)) for key in keys if key in labels)
        return LabelSelector((*self.requirements, *more))


EVERYTHING: Final = LabelSelector()


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


def read_label_selector(selector: Fields) -> LabelSelector:
    """A label selector of the API."""
    return LabelSelector(
        (
            *(LabelRequirement(key, "In", (value,)) for key, value in selector.text_mapping("matchLabels").items()),
            *(
                LabelRequirement(each.required_text("key"), each.required_text("operator"), each.texts("values"))
                for each in selector.children("matchExpressions")
            ),
        )
    )
