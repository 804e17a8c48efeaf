"""A group of settings: what all groups have in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A group of settings: frozen, camelCase in files, unknown keys and values of another type refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, allow_inf_nan=False)
