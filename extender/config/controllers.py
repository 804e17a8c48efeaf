"""Settings of controllers: where each is reached, and how we show who we are."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.alias_generators import to_camel

from allocator.tools import dns_label, dns_subdomain, label_key, shown
from extender.tools.section import Section

Transport = Literal["Http", "PodSchedulingContext"]
"""How a controller is asked: at its URL, or by PodSchedulingContexts of the API server."""

_URL: Final = re.compile(r"https?://[^/?#\s]+[^?#\s]*")


_VERSION: Final = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*")


def _controller(name: str) -> str:
    if wrong := dns_subdomain(name):
        raise ValueError(f"{shown(name)} {wrong}")
    return name


def _url(text: str) -> str:
    if text and not _URL.fullmatch(text):
        raise ValueError(f'{shown(text)} is not a URL such as "https://licenses.example.com"')
    return text.rstrip("/")


def _labels(keys: list[str]) -> list[str]:
    for key in keys:
        if wrong := label_key(key):
            raise ValueError(f"{shown(key)} {wrong}")
    return keys


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise ValueError(f'{shown(text)} is not an apiVersion such as "gpu.example.com/v1"')
    return text


def _plural(text: str) -> str:
    if wrong := dns_label(text):
        raise ValueError(f"{shown(text)} {wrong}")
    return text


def _secret_field(kind: str, resource: str) -> str:
    """The field that names Secrets of the core API; empty if none does. The URL has the resource, whatever the kind."""
    if resource == "secrets":
        return "resource"
    return "kind" if kind == "Secret" else ""


class ParameterKind(Section):
    """A kind of objects that are handed to a controller. We need the right to get them."""

    api_version: Annotated[str, AfterValidator(_version)] = Field(description="As the objects have it.")
    kind: str = Field(description="As the objects have it.", min_length=1)
    resource: Annotated[str, AfterValidator(_plural)] = Field(description="The plural in the URL of the objects.")
    namespaced: bool = Field(default=True, description="Whether the objects have a namespace.")

    @property
    def group(self) -> str:
        """The API group; empty for the core API."""
        return self.api_version.rpartition("/")[0]

    @model_validator(mode="after")
    def _check(self) -> "ParameterKind":
        if not self.group and (field := _secret_field(self.kind, self.resource)):
            text = "Secrets are not handed to controllers: who writes a claim would choose one to read"
            raise ValueError(f"{field}: {text}")
        return self


class ControllerSettings(Section):
    """One controller. The files are read again when they change."""

    name: Annotated[str, AfterValidator(_controller)] = Field(description="As device classes name it.")
    transport: Transport = Field(
        default="Http", description="How it is asked: at its url, or by PodSchedulingContexts of the API server."
    )
    url: Annotated[str, AfterValidator(_url)] = Field(
        default="", description="The address, with transport Http; each question has a path below it."
    )
    ca: str = Field(default="", description="File of the authorities of its certificate, in PEM; empty: the system's.")
    certificate: str = Field(default="", description="File of our certificate, in PEM; empty: none.")
    key: str = Field(default="", description="File of the private key of our certificate, in PEM.")
    token: str = Field(default="", description="File of a token that we send; empty: none.")
    timeout_seconds: float = Field(
        default=2.0, description="How long a question about nodes may take, or the write that asks it.", gt=0
    )
    waiting_share: float = Field(
        default=0.1,
        description="The part of each second that schedulers may wait for its answers about nodes. Over it, its pods "
        "wait, and no others.",
        ge=0,
        le=1,
    )
    allocation_seconds: float = Field(
        default=30.0, description="How long an allocation or a release may take.", gt=0, le=600
    )
    node_labels: Annotated[list[str], AfterValidator(_labels)] = Field(
        default_factory=list, description="Labels of nodes that it is told."
    )
    parameters: list[ParameterKind] = Field(
        default_factory=list, description="Kinds of objects that claims and device classes may name for it."
    )

    @model_validator(mode="after")
    def _check(self) -> "ControllerSettings":
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key need each other")
        if self.transport == "Http" and not self.url:
            raise ValueError("url is required with transport Http")
        by_url = ("url", "ca", "certificate", "token", "node_labels", "parameters")
        if self.transport != "Http" and (given := [name for name in by_url if getattr(self, name)]):
            raise ValueError(f"{to_camel(given[0])} has no use with transport {self.transport}")
        is_plain = self.url.startswith("http:")
        for name in ("ca", "certificate", "token"):
            if is_plain and getattr(self, name):
                raise ValueError(f"{name} needs a url with https")
        return self


def problems_of_controllers(controllers: Sequence[ControllerSettings], deadline_seconds: float) -> Iterator[str]:
    """Questions about nodes that leave filter too little of its time, by the settings of all sources."""
    for number, each in enumerate(controllers):
        if each.timeout_seconds > deadline_seconds / 2:
            text = f"is more than half of scheduling.deadlineSeconds, which is {deadline_seconds:g}"
            yield f"controllers.{number}.timeoutSeconds: {each.timeout_seconds:g} {text}: the search needs the rest"


def distinct(controllers: list[ControllerSettings]) -> list[ControllerSettings]:
    """The controllers, if their names differ."""
    names = [each.name for each in controllers]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"controller {name} is there twice")
    return controllers
