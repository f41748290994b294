"""The command lines of istio-iptables that are not understood."""

import pytest

from iptables.cli import main


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--iptables-trace-logging"], "unknown flag --iptables-trace-logging"),
        (["--log_output_level=loud"], "--log_output_level item 'loud'"),
        (["--log_target=/no/such/directory/x"], "--log_target='/no/such/directory/x'"),
        (["--probe-timeout=5"], "--probe-timeout='5': expected a duration"),
    ],
)
def test_a_command_line_that_is_not_understood_ends_with_255(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv, {}) == 255

    captured = capsys.readouterr()
    assert captured.err.startswith(f"Error: {text}")
    assert f"\terror\t{text}" in captured.out
