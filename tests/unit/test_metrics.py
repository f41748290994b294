import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.metrics import Family, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Return samples as another implementation reads them."""
    return {
        sample.name.removeprefix("istio_agent_") + str(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render())
        for sample in family.samples
    }


def test_nothing_appears_before_it_was_recorded() -> None:
    assert Metrics().render() == ""


def test_counters_add_up_for_each_set_of_labels() -> None:
    metrics = Metrics()

    metrics.count("scrapes_total")
    metrics.count("scrapes_total", 2)
    metrics.count("scrape_failures_total", type="envoy")
    metrics.count("scrape_failures_total", type="application")

    assert metrics.render() == (
        "# HELP istio_agent_scrape_failures_total The total number of failed scrapes, by source.\n"
        "# TYPE istio_agent_scrape_failures_total counter\n"
        'istio_agent_scrape_failures_total{type="application"} 1\n'
        'istio_agent_scrape_failures_total{type="envoy"} 1\n'
        "# HELP istio_agent_scrapes_total The total number of scrapes of the merged endpoint.\n"
        "# TYPE istio_agent_scrapes_total counter\n"
        "istio_agent_scrapes_total 3\n"
    )


def test_a_total_is_over_all_labels() -> None:
    metrics = Metrics()

    metrics.count("scrape_failures_total", type="envoy")
    metrics.count("scrape_failures_total", 2, type="application")

    assert metrics.total("scrape_failures_total") == 3
    assert metrics.total("scrapes_total") is None


def test_a_gauge_is_the_last_value() -> None:
    metrics = Metrics()

    metrics.set("startup_duration_seconds", 1)
    metrics.set("startup_duration_seconds", 0.25)

    assert samples(metrics) == {"startup_duration_seconds[]": 0.25}


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    metrics = Metrics()
    metrics.describe("seconds", Family("histogram", "Time.", (0.1, 1)))

    for value in (0.05, 0.1, 0.5, 7):
        metrics.observe("seconds", value, kind="x")

    assert samples(metrics) == {
        "seconds_bucket[('kind', 'x'), ('le', '0.1')]": 2,
        "seconds_bucket[('kind', 'x'), ('le', '1')]": 3,
        "seconds_bucket[('kind', 'x'), ('le', '+Inf')]": 4,
        "seconds_count[('kind', 'x')]": 4,
        "seconds_sum[('kind', 'x')]": 7.65,
    }


def test_a_metric_nobody_described_is_a_counter() -> None:
    metrics = Metrics()

    metrics.count("surprises")

    assert "# TYPE istio_agent_surprises counter\n" in metrics.render()


def test_label_values_and_help_are_escaped() -> None:
    metrics = Metrics()
    metrics.describe("odd", Family("gauge", "a\\b\nc"))

    metrics.set("odd", 1, path='a"b\\c\nd')

    (family,) = text_string_to_metric_families(metrics.render())
    assert family.documentation == "a\\b\nc"
    assert family.samples[0].labels == {"path": 'a"b\\c\nd'}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 0.1, 1e300, 12345678901234567])
def test_any_number_survives(value: float) -> None:
    metrics = Metrics({"number": Family("gauge", "A number.")})

    metrics.set("number", value)

    assert samples(metrics) == {"number[]": value}


def test_what_is_no_number_is_rendered_as_such() -> None:
    metrics = Metrics()

    metrics.set("number", float("nan"))

    assert metrics.render().endswith("istio_agent_number NaN\n")


def test_collectors_are_asked_at_each_rendering() -> None:
    metrics = Metrics({"seconds_left": Family("gauge", "Time left.")})
    values = iter([1, 2])
    metrics.before_render(lambda: metrics.set("seconds_left", next(values)))

    assert samples(metrics) == {"seconds_left[]": 1}
    assert samples(metrics) == {"seconds_left[]": 2}
