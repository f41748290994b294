"""Which modules are there, what has to be fetched, and what goes. Section 3.4, D-17."""

import pytest

from agent.wasm.cache import (
    Cache,
    Found,
    Key,
    Missing,
    Policy,
    PullSecret,
    Want,
    directory_of,
    is_leftover,
    parse_path,
)

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64
URL = "http://modules/a.wasm"
TAG = "oci://registry/image:v1"
LATEST = "oci://registry/image:latest"
HOUR = 3600.0


def key(url: str, checksum: str) -> Key:
    return Key(directory_of(url), checksum)


def cache_with(want: Want, checksum: str = ONE) -> Cache:
    cache = Cache(HOUR)
    cache.take(want, key(want.url, checksum), 0)
    return cache


def test_a_module_is_missing_until_it_was_taken() -> None:
    cache = Cache(HOUR)
    want = Want("a", URL)

    assert cache.look_up(want, 0) == Missing("")
    assert cache.look_up(want._replace(checksum=ONE), 0) == Missing(ONE)

    cache.take(want, key(URL, ONE), 0)

    assert cache.look_up(want, 0) == Found(key(URL, ONE))
    assert cache.look_up(want._replace(checksum=ONE), 0) == Found(key(URL, ONE))
    assert cache.look_up(want._replace(checksum=TWO), 0) == Missing(TWO)
    assert len(cache) == 1
    assert cache.known(URL) == [key(URL, ONE)]
    assert cache.has(key(URL, ONE))


def test_an_image_by_tag_and_by_digest_is_one_module() -> None:
    """R-25."""
    cache = cache_with(Want("a", TAG))

    by_digest = f"oci://registry/image@sha256:{ONE}"

    assert cache.look_up(Want("b", by_digest), 0) == Found(key(TAG, ONE))
    assert cache.look_up(Want("b", by_digest.replace(ONE, TWO)), 0) == Missing(TWO)


@pytest.mark.parametrize(
    ("url", "policy", "asked_again"),
    [
        (TAG, Policy.ALWAYS, True),
        (TAG, Policy.IF_NOT_PRESENT, False),
        (TAG, Policy.UNSPECIFIED, False),
        (LATEST, Policy.ALWAYS, True),
        (LATEST, Policy.IF_NOT_PRESENT, False),
        (LATEST, Policy.UNSPECIFIED, True),
        ("oci://registry/image", Policy.UNSPECIFIED, False),
        (f"{URL}:latest", Policy.UNSPECIFIED, False),
    ],
)
def test_the_policy_says_whether_a_new_version_asks_again(
    url: str, policy: Policy, *, asked_again: bool
) -> None:
    """T-W5, T-W6."""
    want = Want("a", url, version="1", policy=policy)
    cache = cache_with(want)

    assert isinstance(cache.look_up(want, 0), Found)
    changed = want._replace(version="2")
    assert isinstance(cache.look_up(changed, 0), Missing) is asked_again
    # The version counts as known from then on, even if fetching it fails.
    assert isinstance(cache.look_up(changed, 0), Found)


def test_each_plugin_has_a_version_of_its_own() -> None:
    want = Want("a", TAG, version="1", policy=Policy.ALWAYS)
    other = Want("b", TAG, version="1", policy=Policy.ALWAYS)
    cache = cache_with(want)

    assert cache.look_up(other, 0) == Missing("")

    cache.take(other, key(TAG, TWO), 0)

    assert cache.look_up(other, 0) == Found(key(TAG, TWO))
    assert cache.look_up(want, 0) == Found(key(TAG, TWO))


def test_what_is_not_used_for_long_goes() -> None:
    cache = cache_with(Want("a", URL))

    assert cache.expired(HOUR) == []
    assert cache.look_up(Want("a", URL), HOUR) == Found(key(URL, ONE))
    assert cache.expired(2 * HOUR) == []
    assert cache.expired(2 * HOUR + 1) == [key(URL, ONE)]

    cache.drop(key(URL, ONE))

    assert len(cache) == 0
    assert cache.look_up(Want("a", URL), 0) == Missing("")


def test_what_envoy_was_told_stays() -> None:
    cache = cache_with(Want("a", URL))
    cache.use({"a": key(URL, ONE)})
    cache.use({"b": None})

    assert cache.expired(9 * HOUR) == []

    cache.use({"a": None})

    assert cache.expired(9 * HOUR + 1) == []
    assert cache.expired(10 * HOUR + 1) == [key(URL, ONE)]


def test_the_version_before_stays_as_envoy_may_refuse_the_latest() -> None:
    cache = cache_with(Want("a", TAG))
    cache.take(Want("a", TAG), key(TAG, TWO), 0)
    for checksum in (ONE, TWO, TWO):
        cache.use({"a": key(TAG, checksum)})

    assert cache.expired(9 * HOUR) == []

    cache.use({"a": key(TAG, THREE)})

    assert cache.expired(18 * HOUR + 1) == [key(TAG, ONE)]


def test_using_what_is_gone_brings_nothing_back() -> None:
    cache = Cache(HOUR)
    cache.use({"a": key(URL, ONE)})

    assert cache.expired(0) == []
    assert len(cache) == 0


def test_a_dropped_version_takes_no_other_along() -> None:
    want = Want("a", TAG)
    cache = cache_with(want)
    cache.take(want, key(TAG, TWO), 0)

    cache.drop(key(TAG, ONE))

    assert cache.look_up(want, 0) == Found(key(TAG, TWO))


def test_what_an_earlier_run_left_is_there() -> None:
    cache = Cache(HOUR)
    cache.restore([key(TAG, ONE)], 0)

    assert cache.look_up(Want("a", TAG, ONE), 0) == Found(key(TAG, ONE))
    assert cache.look_up(Want("a", f"oci://registry/image@sha256:{ONE}"), 0) == Found(key(TAG, ONE))
    assert cache.look_up(Want("b", "oci://registry/image:v2"), 0) == Missing("")
    assert [each.checksum for each in cache.known("oci://registry/image:v2")] == [ONE]


def test_paths_say_which_module_it_is() -> None:
    found = key(TAG, ONE)

    assert found.path == f"{found.directory}/{ONE}.wasm"
    assert parse_path(found.path) == found


@pytest.mark.parametrize(
    "path", ["", "a", f"{ONE}/{TWO}", f"{ONE}/x.wasm", f"x/{TWO}.wasm", f"{ONE}/{TWO}.wasm/a.wasm"]
)
def test_other_paths_say_nothing(path: str) -> None:
    assert parse_path(path) is None


def test_leftovers_are_those_of_modules() -> None:
    assert is_leftover(f"{ONE}/x.tmp")
    assert not is_leftover(f"{ONE}/x.wasm")
    assert not is_leftover("other/x.tmp")


def test_a_secret_is_not_shown() -> None:
    assert repr(PullSecret("hidden")) == str(PullSecret("hidden")) == "<pull secret>"
    assert "hidden" not in f"{Want('a', URL, secret=PullSecret('hidden'))}"
