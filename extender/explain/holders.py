"""Who has which device: claims, the pods that use them, and pods for which devices are kept."""

from allocator import DeviceId, PoolId
from extender.explain.explanation import Holder
from extender.explain.holdings import share_of, users
from extender.state.objects import ClaimObject, Pod
from extender.state.snapshot import Snapshot


class Holders:
    """Looks up holders, pool by pool, and only where it is asked."""

    def __init__(self, snapshot: Snapshot, pod: Pod) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._pools: dict[PoolId, dict[str, list[ClaimObject]]] = {}

    def of(self, device: DeviceId) -> tuple[Holder, ...]:
        """The holders of a device, exclusive and shared."""
        claims = self.claims(device)
        return tuple(self._holder(claim, device) for claim in claims) or self._kept()

    def sharing(self, device: DeviceId, capacity: str, consumed: int) -> tuple[Holder, ...]:
        """Who consumes a capacity (in units of 10**-9) of a device, those first that have most of it."""
        shares = [(share_of(device, claim, self._snapshot).get(capacity), claim) for claim in self.claims(device)]
        known = sorted(((amount.nano, claim) for amount, claim in shares if amount), key=lambda each: -each[0])
        kept = self._kept("a share of it") if consumed > sum(amount for amount, _ in known) else ()
        return (*(self._holder(claim, device) for _, claim in known), *kept)

    def claims(self, device: DeviceId) -> list[ClaimObject]:
        """The claims that hold a device or a share of it."""
        return self._pool(device.pool_id).get(device.device, [])

    def _pool(self, pool: PoolId) -> dict[str, list[ClaimObject]]:
        if pool not in self._pools:
            found: dict[str, list[ClaimObject]] = {}
            for uid in sorted(self._snapshot.holders.get(pool, ())):
                claim = self._snapshot.claim(uid)
                results = (r for a in self._snapshot.held_by(uid) for r in a.results if not r.admin_access)
                for device in dict.fromkeys(r.device for r in results if r.device.pool_id == pool):
                    if claim is not None:
                        found.setdefault(device.device, []).append(claim)
            self._pools[pool] = found
        return self._pools[pool]

    def _holder(self, claim: ClaimObject, device: DeviceId) -> Holder:
        assumed = claim.claim.uid in self._snapshot.assumed
        pods = tuple(str(pod) for pod in users(claim, self._snapshot))
        share = tuple((name, str(amount)) for name, amount in share_of(device, claim, self._snapshot).items())
        return Holder(str(claim.key), pods, "being allocated now" if assumed else "", share)

    def _kept(self, what: str = "it") -> tuple[Holder, ...]:
        """Nobody holds it, and yet it is not free: it is kept for pods that are nominated for their nodes."""
        pods = sorted(
            f"{pod}"
            for node in self._snapshot.nominated
            for pod in self._snapshot.nominated_to(node)
            if pod.uid != self._pod.uid and pod.priority >= self._pod.priority
        )
        return (Holder("", tuple(pods), f"nominated and of no lower priority: {what} is kept free"),) if pods else ()
