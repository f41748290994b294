"""The merged page is in one format, whatever its sources answer."""

import asyncio
from collections.abc import Callable
from itertools import product

import pytest
from aiohttp import web
from prometheus_client.openmetrics import parser as openmetrics

from tests.fakes.scraped import (
    ENVOY,
    OM0,
    OM1,
    TEXT,
    dropped,
    failures,
    judged,
    merged,
    merging,
    page,
)


@pytest.mark.parametrize(
    ("content_type", "body", "label", "end"),
    [
        (OM1, "app_up 1\n# EOF\n", OM1, "app_up 1\n# EOF\n"),
        ("application/openmetrics-text", "app_up 1\n# EOF\r\n\r\n", OM0, "app_up 1\n# EOF\n"),
        ("application/openmetrics-text; version=2.0.0", "app_up 1\n# EOF\n", TEXT, "app_up 1\n"),
        ("text/plain", "app_up 1\n# EOF\n", TEXT, "app_up 1\n"),
        ("", "app_up 1\n", TEXT, "app_up 1\n"),
    ],
)
async def test_the_label_is_the_applications_and_the_terminator_fits_it(
    content_type: str, body: str, label: str, end: str
) -> None:
    """A terminator in what is labelled text would be an error (D17)."""
    response, text = await merged(page(ENVOY), page(body, content_type))

    assert response.header("content-type") == label
    assert text == ENVOY + end


async def test_targets_follow_in_their_order_with_one_terminator() -> None:
    """cases.md M8."""

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0)
        return page("# TYPE a gauge\na 1\n# EOF\n", OM1)

    b = page("# TYPE b gauge\nb 1\n# EOF\r\n", OM1)
    c = page("# TYPE c gauge\nc 1", OM1)
    response, text = await merged(page(""), slow, b, c)

    parts = "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE c gauge\nc 1\n# EOF\n"
    assert text == parts
    assert response.header("content-type") == OM1
    families = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # has no types
    assert [family.name for family in families] == ["a", "b", "c"]


async def test_two_text_targets_have_no_terminator() -> None:
    response, text = await merged(page(ENVOY), page("a 1\n"), page("b 1\n"))

    assert text == ENVOY + "a 1\nb 1\n"
    assert response.header("content-type") == TEXT


@pytest.mark.parametrize(
    ("first", "second", "label", "end"),
    [
        (page("a 1\n"), page("b 1\n# EOF\n", OM1), TEXT, "a 1\nb 1\n"),
        (page("a 1\n# EOF\n", OM0), page("b 1\n# EOF\n", OM1), TEXT, "a 1\nb 1\n"),
        (web.Response(status=500), page("b 1\n# EOF\n", OM1), OM1, "b 1\n# EOF\n"),
        (page("", OM1), page("b 1\n# EOF\n", OM1), OM1, "b 1\n# EOF\n"),
        (page("", TEXT), page("b 1\n# EOF\n", OM1), TEXT, "b 1\n"),
    ],
)
async def test_the_format_is_common_to_the_targets_that_answered(
    first: web.Response, second: web.Response, label: str, end: str
) -> None:
    response, text = await merged(page(""), first, second)

    assert response.header("content-type") == label
    assert text == end
    assert len(failures(response)) == (first.status != 200)


def text_page(prefix: str) -> web.Response:
    return page(
        """# A comment.
# HELP P_requests_total With "quotes" and \\\\ back.
# TYPE P_requests_total counter
P_requests_total{code="200",} 5 1395066363000
P_requests_total  { code = "400" } 1\t1395066363000

# TYPE P_seconds histogram
P_seconds_bucket{le="1"} 1
P_seconds_bucket{le="+Inf"} 2
P_seconds_sum 3.5
P_seconds_count 2
P_untyped 1
# TYPE P_gauge gauge\r
P_gauge -1e3\r
""".replace("P_", prefix + "_")
    )


def openmetrics_page(content_type: str, prefix: str) -> web.Response:
    return page(
        """# HELP P_requests Help with \\"quotes\\".
# TYPE P_requests counter
# UNIT P_requests requests
P_requests_total{path="/a\\"b"} 5 1.5 # {trace="x"} 0.5 1.5
P_requests_created{path="/a\\"b"} 1.25 1.5
P_requests_total{path="/c"} 5 2.5
P_requests_created{path="/c"} 1.25 2.5
# TYPE P_build info
P_build_info{version="1"} 1
# TYPE P_state stateset
P_state{P_state="up"} 1
P_state{P_state="down"} 0
# TYPE P_sizes gaugehistogram
P_sizes_bucket{le="1.0"} 1 # {trace="y"} 1
P_sizes_bucket{le="+Inf"} 1
P_sizes_gcount 1
P_sizes_gsum 1
# TYPE P_seconds summary
P_seconds{quantile="0.5"} NaN
P_seconds_sum 3
P_seconds_count 3
P_seconds_created 1.5
P_unknown 1
# EOF
""".replace("P_", prefix + "_")
        .replace("P_gsum -1", "P_gsum 1")
        .replace("gsum -1", "gsum 1"),
        content_type,
    )


#: What real Envoys write: counters with suffix and without, and no HELP.
ENVOY_PAGE = page(
    """# TYPE envoy_cluster_upstream_rq counter
envoy_cluster_upstream_rq{envoy_response_code="200"} 5
# TYPE envoy_cluster_upstream_rq_total counter
envoy_cluster_upstream_rq_total{} 5
# TYPE istio_requests_total counter
istio_requests_total{reporter="source"} 5
# TYPE envoy_cluster_membership_total gauge
envoy_cluster_membership_total{} 1
# TYPE envoy_rq_time histogram
envoy_rq_time_bucket{le="0.5"} 0
envoy_rq_time_bucket{le="1"} 0
envoy_rq_time_bucket{le="+Inf"} 0
envoy_rq_time_sum{} 0
envoy_rq_time_count{} 0
"""
)
OM2 = "application/openmetrics-text; version=2.0.0"
ANSWERS: dict[str, Callable[[str], web.Response]] = {
    "text": text_page,
    "om1": lambda prefix: openmetrics_page(OM1, prefix),
    "om0": lambda prefix: openmetrics_page(OM0, prefix),
    "om2": lambda prefix: openmetrics_page(OM2, prefix),
    "empty": lambda _: page("", OM1),
    "failed": lambda _: web.Response(status=500),
}


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["passed on", "strict"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_every_combination_of_sources_is_for_strict_parsers(
    count: int,
    strict: bool,  # noqa: FBT001 -- a column
) -> None:
    """cases.md M3, M9. Each page has names of its own."""
    failed = web.Response(status=500)
    async with merging(ENVOY_PAGE, *[failed] * count, strict=strict) as (status, envoy, pages):
        for number, kinds in enumerate(product(ANSWERS, repeat=count)):
            envoy.pages["/stats/prometheus"] = failed if number % 5 == 4 else ENVOY_PAGE
            names = [f"{kind}_{position}" for position, kind in enumerate(kinds)]
            for each, kind, name in zip(pages, kinds, names, strict=True):
                each.pages["/metrics"] = ANSWERS[kind](name)
            response = await status.ask("/metrics")

            found = {sample.name for family in judged(response) for sample in family.samples}
            answered = [name for name in names if not name.startswith(("empty", "failed"))]
            assert {f"{name}_requests_total" for name in answered} <= found
            assert {f"{name}_state" for name in answered if name.startswith("om")} <= found
            assert ("istio_requests_total" in found) is (number % 5 != 4)
            assert "istio_agent_scrapes_total" in found
        assert dropped(status.agent.metrics.render()) == {}


async def test_a_page_of_openmetrics_has_its_names_in_text_too() -> None:
    _, text = await merged(None, page("a 1\n"), openmetrics_page(OM1, "P"))

    assert text == (
        """a 1
# HELP P_requests_total Help with "quotes".
# TYPE P_requests_total counter
P_requests_total{path="/a\\"b"} 5 1500
P_requests_total{path="/c"} 5 2500
# HELP P_requests_created Help with "quotes".
# TYPE P_requests_created gauge
P_requests_created{path="/a\\"b"} 1.25 1500
P_requests_created{path="/c"} 1.25 2500
# TYPE P_build_info gauge
P_build_info{version="1"} 1
# TYPE P_state gauge
P_state{P_state="up"} 1
P_state{P_state="down"} 0
P_sizes_bucket{le="1.0"} 1
P_sizes_bucket{le="+Inf"} 1
P_sizes_gcount 1
P_sizes_gsum 1
# TYPE P_seconds summary
P_seconds{quantile="0.5"} NaN
P_seconds_sum 3
P_seconds_count 3
# TYPE P_seconds_created gauge
P_seconds_created 1.5
P_unknown 1
"""
    )


async def test_envoys_page_keeps_its_names_in_openmetrics() -> None:
    """D19; cases.md M3."""
    response, text = await merged(ENVOY_PAGE, page("# TYPE app gauge\napp 1\n# EOF\n", OM1))

    types = {family.name: family.type for family in judged(response)}
    assert types["istio_requests"] == "counter"
    assert types["envoy_cluster_upstream_rq"] == "unknown"  # its counter has no suffix
    assert types["envoy_cluster_upstream_rq_total"] == "unknown"  # its name is taken
    assert types["envoy_rq_time"] == "histogram"
    assert types["istio_agent_scrapes"] == "counter"
    assert 'envoy_rq_time_bucket{le="1"} 0\n' in text
