"""Work that grows with the devices, not with their square."""

from allocator import Inventory, Node, NodeSelector, Placement, Slice, Unsatisfiable
from allocator.model.features import ALL_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from tests.allocator.worlds import World, claim, device, different, pool, pool_id, same, want


def test_steps_of_a_no_grow_with_the_devices() -> None:
    """A request that no root can serve, over roots of four devices each."""
    steps = []
    for number in (100, 200, 400):
        devices = [device(f"gpu-{i:03}", {"root": f"pci-{i // 4}"}) for i in range(number)]
        answer = World(pool(*devices)).allocate(claim(want("gpu", 5), same("root")))
        assert isinstance(answer, Unsatisfiable)
        steps.append(answer.steps / number)
    assert max(steps) <= 1.5


def test_values_that_no_two_devices_share_are_foreseen_in_one_go() -> None:
    devices = [device(f"gpu-{i:03}", {"uuid": f"u{i}"}) for i in range(400)]
    answer = World(pool(*devices)).allocate(claim(want("a", 2), want("b", 1, "false"), different("uuid")))
    assert isinstance(answer, Unsatisfiable)
    assert answer.steps <= 402


def test_an_inventory_is_built_pool_by_pool() -> None:
    """Slices of one pool over many nodes: each node is indexed, none is looked at for each of the others."""
    slices = [Slice(f"s{i:04}", pool_id("rack"), 1, 2000, Placement(f"node-{i}")) for i in range(2000)]
    inventory = Inventory.of(slices)
    assert len(inventory.local) == 2000
    assert len(inventory.pools[pool_id("rack")].slices) == 2000


def test_pools_for_nodes_with_a_label_are_found_by_the_label() -> None:
    """A pool for each host, placed by its label: a node is looked at for its own, not for each of the others."""
    slices = [Slice(f"s{i:04}", pool_id(f"host-{i}"), 1, 1, of_host(f"host-{i}")) for i in range(2000)]
    inventory = Inventory.of(slices)
    assert not inventory.anywhere
    (seen,) = inventory.for_node(Node("n", {"zone": "z", "kubernetes.io/hostname": "host-7"}), ALL_FEATURES)
    assert seen.id == pool_id("host-7")


def of_host(name: str) -> Placement:
    return Placement(
        node_selector=NodeSelector((NodeSelectorTerm((Requirement("kubernetes.io/hostname", "In", (name,)),)),))
    )
