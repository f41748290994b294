"""printf; expectations are Go's."""

import pytest

from bootstrap.template.printf import printf


@pytest.mark.parametrize(
    ("form", "arguments", "expected"),
    [
        ("100%%", [], "100%"),
        ("%s %v", ["a", "b"], "a b"),
        ("%v %v %v", [True, None, [1, "a"]], "true <nil> [1 a]"),
        ("%t", [False], "false"),
        ("%q", ['a"b'], '"a\\"b"'),
        ("%d|%5d|%-5d|%05d|%+d", [1, 2, 3, 4, 5], "1|    2|3    |00004|+5"),
        ("%x %X %o", [255, 255, 8], "ff FF 10"),
        ("%5s|%-5s|%.1s", ["a", "b", "cd"], "    a|b    |c"),
        ("%f %.2f %e", [1.5, 1.5, 1.5], "1.500000 1.50 1.500000e+00"),
        ("%g %v %.2g", [1.5, 1e21, 1.25], "1.5 1e+21 1.2"),
    ],
)
def test_a_form_is_filled(form: str, arguments: list[object], expected: str) -> None:
    assert printf(form, *arguments) == expected


@pytest.mark.parametrize(
    ("form", "arguments", "reason"),
    [
        ("%d", [], "%d has no argument"),
        ("%d", ["a"], "%d of text"),
        ("%d", [True], "%d of a boolean"),
        ("%f", [1], "%f of a whole number"),
        ("%s", ["a", "b"], "2 arguments, 1 more than the form takes"),
        ("%z", ["a"], "%z is not supported; supported: %v %s %q %t %d %x %X %o %f %e %E %g %G"),
        ("%", ["a"], "% is not supported; supported: %v %s %q %t %d %x %X %o %f %e %E %g %G"),
        (5, [], "expected text, found a whole number"),
    ],
)
def test_what_does_not_fit_is_named(form: str, arguments: list[object], reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        printf(form, *arguments)

    assert str(caught.value) == reason
