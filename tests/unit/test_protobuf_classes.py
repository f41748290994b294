"""Generated classes by the names of their types."""

import pytest

from agent.protobuf.classes import load, load_all, message_class

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def test_a_class_is_found_by_its_type() -> None:
    made = message_class(CLUSTER)

    assert made
    assert made.DESCRIPTOR.full_name == "envoy.config.cluster.v3.Cluster"
    assert message_class("google.protobuf.Duration")
    assert message_class(CLUSTER.replace("Cluster", "Nothing")) is None


@pytest.mark.parametrize(
    "name", ["Cluster", "", "os.path.X", "envoy.nothing.v3.X", "this.Foo", "agent.xds.X"]
)
def test_what_is_no_type_of_envoys_is_not_imported(name: str) -> None:
    assert not load(name)


def test_all_that_json_names_is_loaded_and_the_first_that_is_none_is_returned() -> None:
    good = {"@type": CLUSTER, "a": [{"b": 5}, "c", {"@type": CLUSTER}]}

    assert load_all(good) is None
    assert load_all({**good, "d": [1, {"@type": "x/a.B"}, {"@type": "x/c.D"}]}) == "a.B"
    assert load_all({"@type": 5}) is None
