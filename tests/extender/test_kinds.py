"""The registry of watched kinds says what a change concerns, and those who look at changes ask it."""

import pytest

from extender.background.requeue.queueing_hints import EVERYWHERE, NO_HINT, queueing_hint
from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic, all_kinds
from extender.cluster.snapshot import EMPTY
from extender.kube.resources import RESOURCES


def test_every_watched_resource_has_an_entry() -> None:
    assert {name: kind.resource for name, kind in all_kinds().items()} == RESOURCES


@pytest.mark.parametrize("topic", Topic, ids=str)
def test_a_key_that_no_reader_knows_may_help_rejected_pods_anywhere_if_its_topic_can(topic: Topic) -> None:
    hint = queueing_hint([Change(1, topic, object())], EMPTY, EMPTY)
    is_gone = topic is Topic.NODE
    assert hint == (EVERYWHERE if topic.helps_rejected and not is_gone else NO_HINT)
