"""A cluster in memory as a library: no files are written, nothing is printed, and the caller needs no event loop."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from anyio.from_thread import start_blocking_portal

from allocator.checks import DeviceState
from allocator.tools import did_you_mean, hint, nearest
from extender.answers.asking import ANSWER_SECONDS
from extender.answers.audit import audit_snapshot, rows_of
from extender.answers.defragmentation.advice import Advice
from extender.answers.defragmentation.defragment import MOVES, SearchBounds, defragment
from extender.answers.defragmentation.defragment import SECONDS as SEARCH_SECONDS
from extender.answers.explain.explainer import Explainer, explain_claim, unknown_claim
from extender.answers.explain.explanation import Explanation, unknown_pod
from extender.answers.explain.pod_claims import read_admission
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.tables.devices import DeviceFilter, devices
from extender.answers.whatif.answer import WhatIfAnswer
from extender.answers.whatif.answering import Answering
from extender.answers.whatif.question import read_question
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pod_groups import PodGroup
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.priority_classes import PriorityClasses
from extender.cluster.snapshot import Snapshot
from extender.config.settings import ControllerSettings, ParameterKind, Settings
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver, suggestions
from extender.faces.simulation.scheduling import Placements, devices_of, schedule
from extender.faces.simulation.workloads import Skipped, expanded
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import stand_in
from extender.kube.api import ApiError, ObjectKey, key_of
from extender.kube.claim_rules import check_expression
from extender.kube.resources import NAMESPACES, PODS
from extender.lab.api import MemoryApi
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import (
    DEFAULT_NAMESPACE,
    LOADED,
    Loaded,
    ManifestObject,
    RefusedObject,
    duplicates,
    load,
    load_objects,
    over_quota,
    prioritized,
    priority_classes,
    unauthorized,
)
from extender.planning.kube_scheduler import NodeChoice, not_modeled
from extender.planning.templates import Catalog, read_catalog
from extender.plugins.negotiation.questions import resource_of
from extender.tools.logs import log_quietly
from extender.tools.offload import at_once
from extender.tools.table import Rows, TextTable
from extender.tools.user_error import UserError


class ParameterObjects:
    """Finds parameters among the objects of manifests, and keeps them.

    Args:
        controllers: their settings.
        api: gets the objects.
    """

    def __init__(self, controllers: Sequence[ControllerSettings], api: MemoryApi) -> None:
        kinds = [kind for each in controllers for kind in each.parameters]
        self._kinds: Mapping[tuple[str, str], ParameterKind] = {(each.group, each.kind): each for each in kinds}
        self._api = api

    def without(self, documents: Sequence[ManifestObject]) -> Sequence[ManifestObject]:
        """The objects that are no parameters."""
        return [each for each in documents if self._kind_of(each) is None]

    def keep(self, documents: Sequence[ManifestObject]) -> None:
        """Keep those of the objects that are parameters."""
        for kind, key, each in self._parameter_objects(documents):
            self._api.keep(resource_of(kind), key, each.data)

    def _parameter_objects(
        self, documents: Sequence[ManifestObject]
    ) -> Iterator[tuple[ParameterKind, ObjectKey, ManifestObject]]:
        for each in documents:
            kind = self._kind_of(each)
            if kind is not None:
                namespace = (each.namespace or DEFAULT_NAMESPACE) if kind.namespaced else ""
                yield kind, ObjectKey(namespace, each.name), each

    def _kind_of(self, document: ManifestObject) -> ParameterKind | None:
        if document.is_used:
            return None
        group = str(document.data["apiVersion"]).rpartition("/")[0]
        return self._kinds.get((group, document.kind))


_T = TypeVar("_T")

_GROUP_CLAIMS: Final = "spec.resourceClaims of PodGroups (feature gate DRAWorkloadResourceClaims is off)"
_SOURCE: Final = "objects"
"""Stands for the file in messages about objects that come from no file."""


class ManifestsError(UserError, ValueError):
    """Manifests that cannot be used.

    Attributes:
        problems: each with the file, the object, the field and the value, as far as they are known.
    """


class UnreadableFilesError(ManifestsError):
    """Files or folders that cannot be opened."""


class UnknownPodError(LookupError):
    """There is no pod of that name; the text names the one that was probably meant."""


class UnknownClaimError(LookupError):
    """There is no claim of that name; the text names the one that was probably meant."""


class Cluster:
    """A cluster in memory: nodes, ResourceSlices, claims and pods, which the extender schedules.

    Workloads (Deployment, StatefulSet, Job, ...) become pods when they are added. `schedule` then gives pods their
    nodes and devices and changes the cluster; all other methods that return something leave it as it is.

    A cluster is not safe to use from several threads at once.

    Attributes:
        settings: policy, limits and feature gates of the scheduling.
        skipped: the objects that a simulation does not use, with the reason for workloads.
        freed: the claims that were added with an allocation and have lost it, because they were reserved for no pod
            that is there.
    """

    def __repr__(self) -> str:
        """One line."""
        snapshot, pods = self.snapshot, self.pods
        waiting = sum(pod.is_pending for pod in pods)
        devices = sum(len(each.devices) for pool in snapshot.inventory.pools.values() for each in pool.newest)
        return f"<Cluster: {len(snapshot.nodes)} nodes, {devices} devices, {len(pods)} pods, {waiting} of them pending>"

    def __init__(self, settings: Settings | None = None) -> None:
        """An empty cluster; without settings, it has the defaults of the service."""
        log_quietly()
        self.settings = Settings() if settings is None else settings
        self.skipped: tuple[Skipped, ...] = ()
        self.freed: tuple[ObjectKey, ...] = ()
        self._embedded = EmbeddedCluster.by_settings(self.settings)
        self._parameters = ParameterObjects(self.settings.controllers, self._embedded.api)
        self._namespaces: tuple[ManifestObject, ...] = ()

    @classmethod
    def from_manifests(
        cls,
        paths: str | Path | Iterable[str | Path],
        *,
        settings: Settings | None = None,
        refused: Callable[[str], object] | None = None,
        warned: Callable[[str], object] | None = None,
    ) -> "Cluster":
        """A cluster of YAML and JSON files, and of folders of them.

        Args:
            paths: a file or folder, or several; ``-`` is standard input.
            settings: of the scheduling; None: the defaults of the service.
            refused: called with each problem of an object that is left out; None: a problem is an error.
            warned: called with each claim whose namespace lacks the label for adminAccess, and the claim is used; and
                with each object over quota, which is left out, because it would take quota from others. None: such an
                object is refused, as an API server refuses it.

        Raises:
            UnreadableFilesError: files cannot be opened.
            ManifestsError: objects are invalid, and ``refused`` is None.
        """
        cluster = cls(settings)
        each = [paths] if isinstance(paths, str | Path) else paths  # A text is not a list of its letters.
        cluster._add_loaded(load([Path(path) for path in each], check_expression), refused, warned)
        return cluster

    @classmethod
    def from_objects(
        cls,
        objects: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        settings: Settings | None = None,
        refused: Callable[[str], object] | None = None,
    ) -> "Cluster":
        """A cluster of one API object or several, as decoded JSON; other arguments and errors as `from_manifests`."""
        cluster = cls(settings)
        cluster.add(*([objects] if isinstance(objects, Mapping) else objects), refused=refused)
        return cluster

    def add(self, *objects: Mapping[str, Any], refused: Callable[[str], object] | None = None) -> None:
        """Add API objects. A DaemonSet gets pods on the nodes that the cluster has by then.

        Raises:
            ManifestsError: an object is invalid or exists already, and ``refused`` is None. Nothing is added then.
        """
        self._add_loaded(load_objects(objects, _SOURCE, check_expression), refused)

    def apply(self, *manifests: Mapping[str, Any] | str | Path, refused: Callable[[str], object] | None = None) -> None:
        """Add API objects, and give those that are there the labels, the spec and the status of the manifest.

        Pods and claims keep their status, and the spec of a pod can't be changed: `remove` the pod first.

        Args:
            manifests: objects, files, and folders of files.
            refused: as for `from_manifests`.

        Raises:
            UnreadableFilesError: files cannot be opened.
            ManifestsError: an object is invalid, and ``refused`` is None. Nothing is changed then, unless the problem
                is found by the change itself.
        """
        for each in manifests:
            if isinstance(each, Mapping):
                loaded = load_objects([each], _SOURCE, check_expression)
            else:
                loaded = load([Path(each)], check_expression)
            self._add_loaded(loaded, refused, replaces=True)

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object; the devices of a deleted pod are free again.

        Args:
            kind: e.g. ``Pod``. Workloads are no objects of the cluster any more, only their pods.
            name: ``name`` or ``namespace/name`` of the object.
            namespace: if the name has none; ignored for kinds without namespaces.

        Raises:
            KeyError: there is no such kind or object; the text names what was probably meant.
        """
        resource = LOADED.get(kind)
        if resource is None:
            raise KeyError(f"there is no kind {kind}{did_you_mean(nearest(kind, LOADED))}")
        place, _, own = name.rpartition("/")
        key = ObjectKey((place or namespace) if resource.namespaced else "", own)
        try:
            self._run(lambda: self._embedded.remove(resource, key))
        except ApiError as error:
            names = [str(key_of(each)) for each in self._run(lambda: self._embedded.api.list(resource)).items]
            raise KeyError(f"{kind} {key} does not exist{did_you_mean(nearest(str(key), names))}") from error

    def copy(self) -> "Cluster":
        """A cluster of its own with the same objects and settings: what is done to one does not change the other.

        It costs little, since no object is read again: a study may have thousands of copies.
        """
        made = copy(self)
        made.__dict__.pop("_extender", None)
        made._embedded = self._embedded.copy()
        made._parameters = ParameterObjects(self.settings.controllers, made._embedded.api)
        return made

    def schedule(
        self,
        *,
        before: str = "",
        choice: NodeChoice | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Placements:
        """Schedule all pending pods by priority, then the oldest first; equal ones in the order in which they came.

        Args:
            before: ``namespace/name`` of a pod: only the pods that come before it are scheduled.
            choice: kube-scheduler's part in the choice of a node, such as CPU and memory, which the extender does not
                know; None: the conditions that the extender knows, then the first of the best nodes.
            progress: called after each pod with the number of pods that are done, and of all.

        Returns:
            One placement for each pod, in the order of the scheduling. A pod that stays pending is tried again by the
            next call.

        Raises:
            UnknownPodError: ``before`` does not exist.
        """
        until = self._pod(before).key if before else None
        names = self.settings.scheduling.scheduler_names

        async def scheduled() -> Placements:
            try:
                return await schedule(
                    self._extender, self._embedded, names, choice=choice, before=until, progress=progress or _quietly
                )
            finally:
                await self._extender.service.close()

        return self._run(scheduled)

    def explain(self, pod: str, nodes: Sequence[str] | None = None) -> Explanation:
        """Why a pod fits where it fits, or nowhere, and what would change that; in the cluster as it is now.

        Controllers of negotiated claims are asked, as in `schedule`.

        Args:
            pod: ``name`` or ``namespace/name``; the namespace is ``default`` if none is given.
            nodes: explain only these nodes; None: all.

        Raises:
            UnknownPodError: there is no such pod.
            TemplateError: the node templates of the settings cannot be used.
        """
        found = self._pod(pod)
        self._ask_controllers(found)
        admission = self._run(lambda: read_admission(found, self.snapshot, self._embedded.api))
        scheduling = self.settings.scheduling
        explainer = Explainer.alone(
            self.snapshot,
            self._solver,
            scheduling.scheduler_names,
            preempts=scheduling.preemption,
            suggest=suggestions(self._catalog, self.settings),
        )
        return explainer.explain(found, nodes, admission)

    def explain_claim(self, claim: str, nodes: Sequence[str] | None = None) -> Explanation:
        """What a claim holds; or where it can be allocated, or why nowhere and what would change that.

        Its controller is asked, if it has one.

        Args:
            claim: ``name`` or ``namespace/name``; the namespace is ``default`` if none is given.
            nodes: explain only these nodes; None: all.

        Raises:
            UnknownClaimError: there is no such claim.
        """
        namespace, _, name = claim.rpartition("/")
        key = ObjectKey(namespace or "default", name)
        found = self.snapshot.claims.get(key)
        if found is None:
            raise UnknownClaimError(unknown_claim(key, self.snapshot.claims.values()))
        self._ask_controllers(stand_in(found.claim))
        return explain_claim(found, Explainer.alone(self.snapshot, self._solver), nodes)

    def what_if(self, question: Mapping[str, object]) -> WhatIfAnswer:
        """Where pods would run if something were different; the cluster stays as it is.

        Args:
            question: as of ``POST /what-if``, for example ``{"drain": ["node-1"]}``.

        Raises:
            QuestionError: the question has mistakes, or names what does not exist.
            TimeoutError: there was not enough time to find out what happens today.
            TemplateError: the node templates of the settings cannot be used.
        """
        solver, scheduling = self._solver, self.settings.scheduling
        answering = Answering(
            solver.within(solver.clock() + ANSWER_SECONDS),
            self._catalog,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            scheduling.scheduler_names,
            scheduling.preemption,
            PriorityClasses(self._run(self._embedded.priority_classes)),
        )
        return answering.answer(read_question(question), self.snapshot)

    def defragment(self, pod: str = "", *, max_moves: int = MOVES, seconds: float = SEARCH_SECONDS) -> Advice:
        """Which few pods to move, so that pending pods get devices; the cluster stays as it is.

        Args:
            pod: only for this pending pod and those that ask for the same; empty: for all.
            max_moves: the most pods that one proposal moves.
            seconds: the most time for the search.

        Raises:
            UnknownPodError: there is no such pod.
            TimeoutError: not even the pods that fit have their nodes in time.
        """
        only, bounds = self._pod(pod).key if pod else None, SearchBounds(max_moves, seconds)
        names = self.settings.scheduling.scheduler_names
        return defragment(self.snapshot, self._solver, only=only, bounds=bounds, schedulers=names)

    def devices(
        self, *, free: bool | None = None, driver: str = "", pool: str = "", node: str = "", state: str = ""
    ) -> Rows:
        """The devices with their states, attributes and capacities; what is empty or None excludes none.

        Args:
            free: True: only those that are free; False: only the others.
            driver: the name of their driver.
            pool: the name of their pool.
            node: the only node that reaches them.
            state: ``free``, ``allocated`` or another state of the column.

        Raises:
            LookupError: there is no such state, driver, pool or node; the text names what was probably meant.
        """
        snapshot = self.snapshot
        pools = snapshot.inventory.pools
        known: dict[str, tuple[str, Collection[str]]] = {
            "state": (state, [each.value for each in DeviceState]),
            "driver": (driver, {each.driver for each in pools}),
            "pool": (pool, {each.pool for each in pools}),
            "node": (node, snapshot.nodes),
        }
        for noun, (name, names) in known.items():
            if name and name not in names:
                raise LookupError(f"there is no {noun} {name}{hint(name, names)}")
        wanted = DeviceFilter(driver, pool, node, state, free)
        return Rows.of(devices(snapshot, DeviceStates(self.settings.features), wanted, wide=True))

    def audit(self) -> Rows:
        """Which rules allocated claims and pods on nodes break; no rows if every rule holds."""
        return rows_of(audit_snapshot(self.snapshot))

    def diff(self, other: "Cluster") -> Rows:
        """The nodes that one of two clusters lacks, and the pods that have another place there: one row each."""
        here, there = _places(self), _places(other)
        keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
        rows = [(*key, here.get(key, "-"), there.get(key, "-")) for key in keys]
        columns = ("kind", "name", "here", "there")
        return Rows((dict(zip(columns, row, strict=True)) for row in rows), TextTable(columns, rows))

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods, in the order in which they were added; ``node_name`` is empty while a pod is pending."""
        return tuple(map(parse_whole_pod, self._run(lambda: self._embedded.api.list(PODS)).items))

    @property
    def snapshot(self) -> Snapshot:
        """Everything that decisions depend on, as an immutable value: nodes, pools, claims, what is in use."""
        return self._embedded.state.snapshot

    @property
    def ignored(self) -> tuple[str, ...]:
        """What counts in Kubernetes and is ignored here, each once: conditions of pods, and claims of PodGroups."""
        snapshot = self.snapshot
        found = set(not_modeled(snapshot.pods.values(), snapshot))
        if not snapshot.has_group_claims and any(group.claims for group in snapshot.objects(PodGroup).values()):
            found.add(_GROUP_CLAIMS)
        return tuple(sorted(found))

    @cached_property
    def _solver(self) -> Solver:
        return make_solver(self.settings)

    @cached_property
    def _catalog(self) -> Catalog:
        return read_catalog(self.settings)

    @cached_property
    def _extender(self) -> Extender:
        api, state = self._embedded.api, self._embedded.state
        around = Surroundings(simulation=True)
        return make_extender(api, state, self._solver, self.settings, around=around, off_loop=at_once)

    def _ask_controllers(self, pod: Pod) -> None:
        if not self.snapshot.controllers:
            return

        async def asked() -> None:
            try:
                await self._extender.negotiation.look(pod)
            finally:
                await self._extender.service.close()

        self._run(asked)

    def _pod(self, name: str) -> Pod:
        namespace, _, own = name.rpartition("/")
        key = ObjectKey(namespace or "default", own)
        pods = {pod.key: pod for pod in self.pods}
        if key not in pods:
            raise UnknownPodError(unknown_pod(key, pods))
        return pods[key]

    def _add_loaded(
        self,
        loaded: Loaded,
        refused: Callable[[str], object] | None,
        warned: Callable[[str], object] | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        """Add the objects of manifests that are not refused; with ``replaces``, change those that are there."""
        if loaded.unreadable:
            raise UnreadableFilesError(*loaded.unreadable)
        documents, nodes = self._parameters.without(loaded.documents), self.snapshot.nodes.values()
        classes, second = priority_classes(documents, self._run(self._embedded.priority_classes))
        expansion = expanded(documents, classes, nodes)
        objects, unprioritized = prioritized(expansion.objects, classes)
        known = [each for each in objects if self._embedded.has(each)] if replaces else []
        there = set(map(id, known))
        new = [each for each in objects if id(each) not in there]
        objects, problems = self._admitted(new, [*second, *unprioritized], warned)
        problems = (*loaded.problems, *expansion.problems, *problems)
        if problems and refused is None:
            raise ManifestsError(*problems)
        for problem in problems:
            if refused is not None:
                refused(problem)
        self.skipped += tuple(expansion.skipped)
        self._namespaces += tuple(each for each in objects if each.kind == NAMESPACES.kind)
        self._embedded.load(objects)
        for each in known:
            self._replace(each, refused)
        self._parameters.keep(loaded.documents)
        self._embedded.refuse(loaded.refused)
        self._run(self._embedded.settle)
        held = (each.value for each in objects if isinstance(each.value, ClaimObject))
        self.freed += tuple(
            each.key for each in held if each.claim.allocation is not None and not self._holds(each.key)
        )

    def _holds(self, claim: ObjectKey) -> bool:
        found = self.snapshot.claims.get(claim)
        return found is not None and found.claim.allocation is not None

    def _replace(self, manifest: ManifestObject, refused: Callable[[str], object] | None) -> None:
        try:
            self._run(lambda: self._embedded.replace(manifest))
        except ApiError as error:
            problem = f"{manifest.source}: {manifest}: {error}"
            if refused is None:
                raise ManifestsError(problem) from error
            refused(problem)

    def _admitted(
        self,
        objects: Sequence[ManifestObject],
        refused: Sequence[RefusedObject],
        warned: Callable[[str], object] | None,
    ) -> tuple[list[ManifestObject], tuple[str, ...]]:
        """The objects that the cluster can have, and the problems of the others; some are refused already."""
        refusals = [*duplicates(objects), *refused]
        lacking = list(unauthorized([*self._namespaces, *objects]))
        over = list(over_quota(objects, self._run(self._embedded.charged)))
        if warned is None:
            refusals += [*lacking, *over]
        else:
            for each in [*lacking, *over]:
                warned(str(each))
        out = {id(refusal.object) for refusal in [*refusals, *over]}
        there = [each for each in objects if self._embedded.has(each)]
        problems = (*map(str, refusals), *(f"{each.source}: {each} exists already" for each in there))
        out |= {id(each) for each in there}
        return [each for each in objects if id(each) not in out], problems

    def _run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in an event loop of its own: the caller may have one that runs, or none."""
        with start_blocking_portal() as portal:
            found: _T = portal.call(work)
            return found


def _quietly(_done: int, _all: int) -> None:
    pass


def _places(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Kind and name of each node and pod to where it is."""
    found = {("Node", name): "there" for name in cluster.snapshot.nodes}
    for pod in cluster.pods:
        devices = "".join(f" {each}" for each in devices_of(pod, cluster.snapshot))
        found["Pod", str(pod)] = f"{pod.node_name}{devices}" if pod.node_name else "pending"
    return found
