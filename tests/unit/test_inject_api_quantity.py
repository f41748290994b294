"""Source: status-lifecycle.md section 11.17."""

import pytest

from agent.inject.api.quantity import canonical


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("100m", "100m"),
        ("2000m", "2"),
        ("4000m", "4"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("5e1", "50"),
        ("0.5Mi", "512Ki"),
        ("0.1Ki", "102400m"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1", "-1"),
        ("-2048Ki", "-2Mi"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        (" 1 ", "1"),
        (1, "1"),
        (0.5, "500m"),
        ("1000000000000000000000", "1000E"),
        ("9" * 64, "9" * 64),
    ],
)
def test_a_quantity_has_the_largest_unit_that_leaves_a_whole_number(
    given: object, written: str
) -> None:
    assert canonical(given) == written
    assert canonical(written) == written


@pytest.mark.parametrize(
    "given", ["", "1 Gi", "1gi", "Mi", "1e999", "1.2.3", "--1", "9" * 65, None, True, [], "1\n2"]
)
def test_what_is_no_quantity_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="expected a quantity such as"):
        canonical(given)
