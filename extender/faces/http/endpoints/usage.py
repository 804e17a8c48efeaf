"""Usage over time on HTTP: devices that were held, and how long pods waited, as a table, JSON or CSV."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import FastAPI
from pydantic import AfterValidator, Field
from starlette.responses import Response

from allocator.tools import JSON
from extender.answers.observe.overview import Overview
from extender.answers.usage.usage import By
from extender.answers.usage.usage_table import DAY, Window, minutes_of, usage_view, waits_view
from extender.faces.http.endpoints.tables import Paging, Table, add_table
from extender.framework import wire
from extender.tools.table import QueryError, TableView


def _length(text: str) -> str:
    minutes_of(text)
    return text


def _optional_length(text: str) -> str:
    return _length(text) if text else text


class UsageParameters(Paging):
    """Of which time, and what a row is about."""

    by: By = Field(default=By.NAMESPACE, description="What a row is about.", examples=["model"])
    window: Annotated[str, AfterValidator(_length)] = Field(
        default=DAY, description="The time up to now, from 1m to 24h.", examples=["6h"]
    )
    step: Annotated[str, AfterValidator(_optional_length)] = Field(
        default="", description="A row for each step of this length; without it, for the whole time.", examples=["15m"]
    )
    waits: bool = Field(
        default=False, description="How long pods waited, by namespace, instead of devices.", examples=["true"]
    )
    namespace: str = Field(default="", description="Of this namespace.", examples=["default"])
    device_class: str = Field(default="", alias="class", description="Of this device class, with by=class.")
    model: str = Field(default="", description="Of this model, with by=model.")
    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    names: bool = Field(
        default=True,
        description="With the names of namespaces. Who may not read /pods gets the sum of all.",
        examples=["false"],
    )

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out rows."""
        kept = {"namespace", "class", "model", "driver"}
        return {name: value for name, value in super().filters.items() if name in kept}

    def wanted(self) -> Mapping[str, str]:
        """The values that are wanted, by column.

        Raises:
            QueryError: the rows have no such column.
        """
        columns = {"namespace"} if self.waits else {self.by.value, "driver"}
        for name in self.filters:
            if name not in columns:
                raise QueryError(f"{name}: {'waits=true' if self.waits else f'by={self.by.value}'} has no such column")
        return {name: str(value) for name, value in self.filters.items()}


def _view(overview: Overview, query: UsageParameters) -> TableView:
    window, wanted = Window(minutes_of(query.window), minutes_of(query.step) if query.step else 0), query.wanted()
    if not query.waits:
        return usage_view(overview.usage, query.by, window, names=query.names, wanted=wanted)
    if query.by is not By.NAMESPACE:
        raise QueryError(f"by: waits=true is by namespace, not by {query.by.value}")
    return waits_view(overview.usage, window, names=query.names, namespace=wanted.get("namespace", ""))


USAGE: Final = Table(
    "usage",
    "Usage over time: devices that claims held, and device-hours, by namespace, class, model or driver.",
    UsageParameters,
    _view,
    {
        "namespace": "default",
        "driver": "gpu.example.com",
        "devices": 5.25,
        "of": 16.0,
        "share": 0.3281,
        "peak": 8.0,
        "hours": 126.0,
    },
    rows="rows of usage",
    when_empty="no claim has held a device, or no pod has waited, in this time",
    without_names=lambda query: query.model_copy(update={"names": False}),
)


def add_usage(app: FastAPI, overview: Overview, grafana: str) -> None:
    """``/usage``, and where the console leads for more; ``grafana``: the URL of a board, empty if there is none."""
    add_table(app, overview, USAGE)

    @app.get("/console/usage", tags=["console"], summary="Where there is more of usage.", response_class=Response)
    async def get_console_usage() -> Response:
        return Response(wire.as_line({"grafana": grafana}), media_type="application/json")
