"""Deallocation of claims whose controllers have written the allocation: the controller is asked, and clears it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from allocator import Claim
from extender.cluster.controller_marks import Mark, asks_to_deallocate, is_to_deallocate
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims import ClaimWrites
from extender.kube.api import ApiError, OutcomeUnknownError
from extender.plugins.negotiation.known_controller import KnownController

logger = structlog.get_logger()


def controllers_of(claim: Claim, snapshot: Snapshot) -> Sequence[str]:
    """The controllers that may hold a claim: those of its device classes now, and that of its mark.

    The mark tells who has allocated when the class had another controller. But users may write any name there, or
    remove the mark.
    """
    mark, controllers = Mark.of(claim), snapshot.controllers
    classes = (each.device_class for request in claim.spec.requests for each in request.alternatives)
    names = [controllers[name] for name in classes if name in controllers]
    names += [mark.controller] if mark is not None and mark.controller else []
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Deallocation:
    """Asks controllers to deallocate claims.

    Attributes:
        controllers: by name.
        claims: the claims of the API server.
    """

    controllers: Mapping[str, KnownController]
    claims: ClaimWrites

    def is_idle(self, claim: ClaimObject) -> bool:
        """Whether a claim is allocated by a controller that wrote the allocation, and reserved for nobody."""
        value = claim.claim
        if value.allocation is None or value.reserved_for or value.deleting or is_immediate(value):
            return False
        known = map(self.controllers.get, controllers_of(value, self.claims.state.snapshot))
        return Mark.of(value) is not None and any(each is not None and each.writes_claims for each in known)

    async def request(self, claim: ClaimObject) -> bool:
        """Ask the controller of an idle claim to deallocate it; whether it was asked. One try."""
        if asks_to_deallocate(claim.claim):
            return True
        try:
            await self.claims.update(is_to_deallocate(await self.claims.whole(claim)))
        except (ApiError, OutcomeUnknownError) as error:
            logger.info("controller not asked to deallocate", claim=str(claim.key), error=str(error))
            return False
        logger.info("controller asked to deallocate", claim=str(claim.key))
        return True
