"""The registry of watched kinds says what a change concerns, and those who look at changes ask it."""

import pytest

from extender.cluster.kinds import Topic, all_kinds
from extender.cluster.snapshot import EMPTY
from extender.cluster.timeline import Reach
from extender.framework.plugin import Plugins
from extender.framework.queueing_hints import EVERYWHERE, NO_HINT, queueing_hint
from extender.kube.resources import RESOURCES


def test_every_watched_resource_has_an_entry() -> None:
    assert {name: kind.resource for name, kind in all_kinds().items()} == RESOURCES


@pytest.mark.parametrize("topic", [Topic.CLASS, Topic.TEMPLATE, Topic.POD_GROUP, Topic.RESOURCE_CLASS, Topic.CONTEXT])
def test_a_topic_that_hints_do_not_know_may_help_anywhere_if_its_concern_says_so(
    topic: Topic,
) -> None:
    hint = queueing_hint(Reach({topic: {"any"}}), EMPTY, EMPTY, Plugins())
    assert hint == (EVERYWHERE if topic.helps_rejected else NO_HINT)
