"""What becomes of an Envoy that dies, and of what it said last."""

import signal
from pathlib import Path

import pytest

from tests.fakes.supervised import DRAIN, ENDLESS, SETTINGS, pod, send_to_self
from tests.waiting import until


async def test_envoys_own_end_is_passed_on(tmp_path: Path) -> None:
    """Cases V4, D26."""
    async with pod(tmp_path) as it:
        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137


async def test_envoys_end_during_a_drain_ends_the_drain(tmp_path: Path) -> None:
    """Cases D21, D27."""
    async with pod(tmp_path, ENDLESS) as it:
        send_to_self(signal.SIGTERM)
        await until(lambda: DRAIN in it.requests())

        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 0


async def test_what_envoy_writes_at_the_end_arrives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Case D25."""
    async with pod(tmp_path, last_words="last access log\n") as it:
        send_to_self(signal.SIGTERM)
        await it.exit_code()

    assert "last access log\n" in capfd.readouterr().out


@pytest.mark.parametrize("kills", [0, 1])
async def test_a_kill_by_the_kernel_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kills: int
) -> None:
    """Case V5."""
    async with pod(tmp_path) as it:
        it.oom_kills = kills
        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137

    assert ("out of memory" in caplog.text) == bool(kills)


@pytest.mark.slow
async def test_a_killed_envoy_is_started_again_until_restarts_are_used_up(tmp_path: Path) -> None:
    """Cases V1, V3 and V7."""
    async with pod(tmp_path, settings=SETTINGS._replace(restarts=1)) as it:
        first = it.envoy
        first.send(signal.SIGKILL)
        await until(it.supervisor.problem)
        assert it.supervisor.problem() == "Envoy is restarted, 1 of 1 times"
        await until(lambda: it.restarts)
        assert (it.supervisor.problem(), it.supervisor.starts()) == (None, 2)

        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137
        assert it.envoy.pid != first.pid


@pytest.mark.slow
async def test_a_signal_ends_the_pause_before_a_restart(tmp_path: Path) -> None:
    async with pod(tmp_path, settings=SETTINGS._replace(restarts=1)) as it:
        it.envoy.send(signal.SIGKILL)
        await until(it.supervisor.problem)

        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.restarts == 0
