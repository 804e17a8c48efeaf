"""TokenReviews and SubjectAccessReviews: the API server says whose a token is, and what a user may do."""

from collections.abc import Mapping
from typing import Any, Final

from extender.access.user import User, user_of_review
from extender.kube.api import RawObject
from extender.kube.connection.transport import HttpRequest, Transport, ask
from extender.kube.encoding import dumps
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.permissions import Permission
from extender.kube.resources import Resource

TOKEN_REVIEWS: Final = Resource("TokenReview", "tokenreviews", "authentication.k8s.io", ("v1",), namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io", ("v1",), namespaced=False
)
REVIEWS: Final = (Permission("create", TOKEN_REVIEWS), Permission("create", ACCESS_REVIEWS))
"""The rights of ours that reviews need; the ClusterRole ``system:auth-delegator`` has them."""

_SECONDS: Final = 5.0
"""For one answer. A caller waits as long."""


class ReviewError(Exception):
    """The API server did not answer a review."""


class Reviews:
    """Asks an API server.

    Args:
        transport: to the API server.
        audience: whom tokens must be meant for; empty: the API server.
    """

    def __init__(self, transport: Transport, audience: str = "") -> None:
        self._transport = transport
        self.audience = audience

    async def user_of(self, token: str) -> User | None:
        """Whose token it is; None if it is not valid, or meant for others.

        Raises:
            ReviewError: no answer.
        """
        audiences = {"audiences": [self.audience]} if self.audience else {}
        status = await self._review(TOKEN_REVIEWS, {"token": token, **audiences})
        # An API server that does not know of audiences names none, and has checked none.
        if self.audience and self.audience not in (status.get("audiences") or ()):
            return None
        return user_of_review(status)

    async def allows(self, user: User, verb: str, path: str) -> bool:
        """Whether a user may do something with a path that is no resource, e.g. ``get`` with ``/devices``.

        Raises:
            ReviewError: no answer.
        """
        who = {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": dict(user.extra)}
        spec = {name: value for name, value in who.items() if value}
        status = await self._review(ACCESS_REVIEWS, {**spec, "nonResourceAttributes": {"path": path, "verb": verb}})
        return status.get("allowed") is True

    async def _review(self, resource: Resource, spec: RawObject) -> Mapping[str, Any]:
        version = resource.api_versions()[0]
        body = dumps({"apiVersion": version, "kind": resource.kind, "spec": spec})
        request = HttpRequest("POST", f"/apis/{version}/{resource.plural}", body=body)
        try:
            answer = await ask(self._transport, request, _SECONDS)
        except (ApiError, OutcomeUnknownError) as error:
            raise ReviewError(str(error)) from error
        status = answer.get("status")
        return status if isinstance(status, dict) else {}
