"""Plans of gangs: which pods count as alike, what other gangs have, and how long a plan takes."""

from tests.extender.ganging import Scene, members, nodes


async def test_pods_that_were_asked_about_other_nodes_are_not_alike() -> None:
    scene = Scene(*nodes("ab"), *members("x", 2))
    for _ in range(2):
        scene.filter("x0", names="ab")
        scene.filter("x1", names="a")
        await scene.turns()
    assert (scene.known("x0").kept.node, scene.known("x1").kept.node) == ("b", "a")
