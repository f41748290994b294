"""Source: status-lifecycle.md sections 11.10 and 11.12."""

import pytest

from agent.inject.status import (
    OVERRIDES,
    STATUS,
    read_overrides,
    read_status,
    write_overrides,
    write_status,
)


def test_a_status_names_what_was_added() -> None:
    template = {
        "initContainers": [{"name": "istio-init"}],
        "containers": [],
        "volumes": [{"name": "a"}, {"name": "b"}],
    }

    text = write_status(template, "")

    assert text == (
        '{"initContainers":["istio-init"],"containers":null,"volumes":["a","b"],'
        '"imagePullSecrets":null,"revision":"default"}'
    )
    status = read_status({STATUS: text})
    assert status
    assert status.has("initContainers", "istio-init")
    assert not status.has("containers", "istio-init")
    assert not status.has("other", "x")
    assert write_status({}, "canary").endswith('"revision":"canary"}')


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"containers":5}', "null", "[" * 100_000])
def test_a_status_that_cannot_be_read_is_none(text: str) -> None:
    assert read_status({STATUS: text}) is None
    assert read_status({}) is None


def test_overrides_come_back_as_they_were_written() -> None:
    proxy = {"resources": {}, "imagePullPolicy": "Always", "name": "istio-proxy", "image": ""}

    text = write_overrides({"containers": [proxy], "initContainers": []})

    assert text == (
        '{"containers":[{"name":"istio-proxy","resources":{},"imagePullPolicy":"Always"}]}'
    )
    assert read_overrides({OVERRIDES: text}) == {
        "containers": [{"name": "istio-proxy", "resources": {}, "imagePullPolicy": "Always"}],
        "initContainers": [],
    }
    assert read_overrides({}) == {"containers": [], "initContainers": []}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected JSON as an earlier injection wrote it"),
        ("[]", "expected JSON as an earlier injection wrote it"),
        ('{"containers":5}', "expected JSON as an earlier injection wrote it"),
        ('{"containers":[5]}', "containers=5: expected an object"),
        ('{"initContainers":[{"image":5}]}', "initContainers.image=5: expected text"),
    ],
)
def test_overrides_that_cannot_be_read_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="remove it to inject afresh") as caught:
        read_overrides({OVERRIDES: text})

    assert str(caught.value).startswith(f"annotation {OVERRIDES}: {problem}")
