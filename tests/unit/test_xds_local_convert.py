"""Resource files into resources: the forms that are taken, and what is said of the others."""

import json
import sys

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2

from agent.xds.local.convert import convert
from agent.xds.local.parse import FileError
from agent.xds.resources import CLUSTER, ENDPOINT, LISTENER

ONE = f'"@type": {CLUSTER}\nname: one\nconnect_timeout: 5s\n'
TWO = f'"@type": {CLUSTER}\nname: two\n'
LISTED = f'- {{"@type": {CLUSTER}, name: one}}\n- {{"@type": {CLUSTER}, name: two}}\n'


def names(**files: str) -> list[str]:
    return [item.name for item in convert(encoded(files))[1]]


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name.replace("_", "."): text.encode() for name, text in files.items()}


def test_a_document_is_a_resource() -> None:
    _, (resource,) = convert({"a.yaml": ONE.encode()})

    cluster = cluster_pb2.Cluster.FromString(resource.body)
    assert (resource.type_url, resource.name) == (CLUSTER, "one")
    assert (cluster.name, cluster.connect_timeout.seconds) == ("one", 5)


def test_endpoints_are_named_by_their_cluster() -> None:
    _, (resource,) = convert({"a.yaml": f'"@type": {ENDPOINT}\ncluster_name: x\n'.encode()})

    assert resource.name == "x"
    assert endpoint_pb2.ClusterLoadAssignment.FromString(resource.body).cluster_name == "x"


def test_a_type_may_live_beside_a_service() -> None:
    runtime = "type.googleapis.com/envoy.service.runtime.v3.Runtime"

    _, (resource,) = convert({"a.yaml": f'"@type": {runtime}\nname: r\n'.encode()})

    assert (resource.type_url, resource.name) == (runtime, "r")


def test_extensions_inside_are_packed() -> None:
    tcp_proxy = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    content = {
        "@type": LISTENER,
        "name": "l",
        "filterChains": [
            {"filters": [{"name": "f", "typedConfig": {"@type": tcp_proxy, "cluster": "c"}}]}
        ],
    }

    _, (resource,) = convert({"a.json": json.dumps(content).encode()})

    packed = listener_pb2.Listener.FromString(resource.body).filter_chains[0].filters[0]
    assert packed.typed_config.type_url == tcp_proxy
    assert tcp_proxy_pb2.TcpProxy.FromString(packed.typed_config.value).cluster == "c"


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}---\n{TWO}",
        f"---\n{ONE}---\n---\n{TWO}",
        LISTED,
        "version_info: 1\nresources:\n" + LISTED,
        json.dumps([{"@type": CLUSTER, "name": "one"}, {"@type": CLUSTER, "name": "two"}]),
        json.dumps({"resources": [{"@type": CLUSTER, "name": n} for n in ("one", "two")]}),
    ],
)
def test_a_file_holds_one_resource_or_several(text: str) -> None:
    assert names(a_yaml=text) == ["one", "two"]
    if text.startswith(("[", "{")):
        assert names(a_json=text) == ["one", "two"]


def test_files_are_taken_in_the_order_of_their_names() -> None:
    assert names(b_yaml=ONE, a_yml=TWO) == ["two", "one"]


def test_versions_follow_the_content() -> None:
    version, (one, two) = convert(encoded({"a_yaml": ONE, "b_yaml": TWO}))
    same, _ = convert(encoded({"a_yaml": f"# a comment\n{ONE}---\n{TWO}"}))
    other, (changed, kept) = convert(encoded({"a_yaml": ONE.replace("5s", "6s"), "b_yaml": TWO}))

    assert same == version != other
    assert one.version != changed.version
    assert two == kept


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a_yaml", "", "a.yaml:1: holds no resource"),
        ("a_yaml", "---\n# nothing\n", "a.yaml:1: holds no resource"),
        ("a_json", " ", "a.json:1: holds no resource"),
        ("a_json", '{\n"@type": }', "a.json:2: is not JSON: Expecting value"),
        ("a_yaml", "a: b: c", "a.yaml:1: is not YAML: mapping values are not allowed here"),
        ("a_yaml", f"{ONE}\n\t- x", "a.yaml:5: is not YAML: found character"),
        ("a_yaml", "\x07", "a.yaml:1: is not YAML: unacceptable character"),
        ("a_yaml", f"{ONE}---\nname: x\n", "a.yaml:5: expected a resource with '@type'"),
        ("a_yaml", "- 1\n", "a.yaml:1: expected a resource with '@type'"),
        ("a_yaml", "? [a, b]\n: c\n", "a.yaml:1: is not YAML: found unhashable key"),
        ("a_yaml", f'{TWO}---\n"@type": {CLUSTER}\n', f"a.yaml:4: {CLUSTER} has no name"),
        ("a_yaml", '"@type": x/envoy.config.cluster.v3.Clust\nname: x', "a.yaml:1: there is no"),
        ("a_yaml", '"@type": x/envoy.nothing.v3.X\nname: x', "there is no type 'envoy.nothing"),
        ("a_yaml", '"@type": Cluster\nname: x', "a.yaml:1: there is no type 'Cluster'"),
        ("a_yaml", f"{ONE}lb_police: x\n", 'has no field named "lb_police"'),
        ("a_yaml", f"{TWO}connect_timeout: 5\n", "a.yaml:1: Failed to parse connect_timeout"),
        ("a_yaml", f"{ONE}---\n{ONE}", "a.yaml:5: 'one' is already in a.yaml:1"),
        ("a_yaml", f"{TWO}metadata: {{typed_filter_metadata: {{a: {{'@type': x/y.Z}}}}}}", "y.Z"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(name: str, text: str, reason: str) -> None:
    with pytest.raises(FileError) as caught:
        convert(encoded({name: text}))

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("metadata: {typed_filter_metadata: {a: {'@type': 5}}}", "AttributeError 'int' object"),
        ("alt_stat_name: [1]", "Failed to parse alt_stat_name"),
        ('alt_stat_name: "\\ud800"', "Unpaired surrogate"),
        ("1: 2\n'2': 3", "Failed to parse 1 field"),
        (f"lb_subset_config: {'{a: ' * 90}1{'}' * 90}", 'no field named "a"'),
    ],
)
def test_whatever_protobuf_makes_of_a_value_the_file_is_named(fields: str, reason: str) -> None:
    with pytest.raises(FileError) as caught:
        convert({"a.yaml": f"{ONE}---\n{TWO}{fields}\n".encode()})

    assert str(caught.value).startswith("a.yaml:5: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["os.path", "this.Foo", "antigravity.X", "google.nothing.X", "envoy", "", "...", "5",
     "envoy.config.cluster.v3.cluster_pb2.Cluster"],
)  # fmt: skip
def test_a_file_does_not_choose_what_is_imported(name: str) -> None:
    before = set(sys.modules)

    with pytest.raises(FileError, match=rf"^a\.yaml:1: there is no type '{name}'$"):
        convert({"a.yaml": f'"@type": "{name}"\nname: x\n'.encode()})

    assert not {"this", "antigravity"} & (set(sys.modules) - before)


def test_it_is_told_which_file_is_read() -> None:
    begun: list[str] = []

    with pytest.raises(FileError):
        convert(encoded({"a_yaml": ONE, "b_yaml": "x", "c_yaml": TWO}), begun.append)

    assert begun == ["a.yaml", "b.yaml"]
