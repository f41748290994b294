"""Tokens, from their file or from Google's metadata server. Source: section 6.4."""

import asyncio
import contextlib
import stat
from pathlib import Path

import pytest

from agent.credentials.client import fetch_token, keep_fresh
from agent.credentials.files import EXPECTED
from agent.credentials.settings import TokenSettings
from agent.errors import SecretError
from tests.fakes.google import PATH, google, token
from tests.waiting import until


async def test_a_file_is_read_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C1; without one there is no token, and that is no error."""
    settings = TokenSettings(str(tmp_path / "token"))
    found = []
    for text in ("one\n", " two"):
        (tmp_path / "token").write_text(text)
        found.append(await fetch_token(settings))
    (tmp_path / "token").unlink()

    assert [*found, await fetch_token(settings)] == ["one", "two", ""]
    assert f"reason='No such file or directory; {EXPECTED}'" in caplog.text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a\nb", "has more than one line, or what is no text"),
        (b"a\0b", "has more than one line, or what is no text"),
        ("ä".encode(), "is no ASCII"),
        (b"\xff", "is no ASCII"),
        (b"", "is empty"),
        (b" \n", "is empty"),
    ],
)
async def test_what_no_header_can_carry_is_no_token(
    tmp_path: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC would refuse the whole call, by an error of its own kind."""
    path = tmp_path / "token"
    path.write_bytes(content)

    assert await fetch_token(TokenSettings(str(path))) == ""
    assert caplog.messages == [f"no token path={path} reason='{reason}; {EXPECTED}'"]


async def test_a_directory_is_no_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await fetch_token(TokenSettings(str(tmp_path))) == ""
    assert f"reason='Not a regular file; {EXPECTED}'" in caplog.text


async def test_google_is_asked_each_time_and_its_answer_kept(tmp_path: Path) -> None:
    async with google(tmp_path) as metadata:
        settings = metadata.settings._replace(audience="a domain/x")

        found = [await fetch_token(settings) for _ in range(2)]

    assert found == metadata.given
    assert len(set(found)) == 2
    assert metadata.targets == [f"{PATH}?audience=a%20domain/x&format=full"] * 2
    assert (tmp_path / "token").read_text() == found[1]
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o640


async def test_while_google_does_not_answer_the_last_token_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with google(tmp_path) as metadata:
        first = await fetch_token(metadata.settings)
        metadata.status, metadata.text = 503, "busy"

        assert await fetch_token(metadata.settings) == first
        assert "expected 200, got 503: busy" in caplog.text
        assert first not in caplog.text

        (tmp_path / "token").write_text(token(10))
        with pytest.raises(SecretError, match="got 503: busy"):
            await fetch_token(metadata.settings)


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (404, "not found\nhere", "got 404: not found; does the machine have a default service"),
        (404, " ", "got 404: nothing"),
        (200, "hello", "expected a JWT with a time of expiry"),
        (200, "x" * 100_000, "answer is longer than 65536 bytes"),
    ],
)
async def test_what_is_no_token_is_none(tmp_path: Path, status: int, text: str, said: str) -> None:
    async with google(tmp_path) as metadata:
        metadata.status, metadata.text = status, text

        with pytest.raises(SecretError, match=said) as caught:
            await fetch_token(metadata.settings)

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "token").exists()


async def test_where_there_is_no_google_there_is_no_token(tmp_path: Path) -> None:
    settings = TokenSettings(str(tmp_path / "token"), "127.0.0.1", 1)

    with pytest.raises(SecretError, match=r"from the metadata server: .*connection refused"):
        await fetch_token(settings)


async def test_google_has_its_time_and_no_more(tmp_path: Path) -> None:
    async with google(tmp_path) as metadata:
        metadata.is_silent = True

        with pytest.raises(SecretError, match=r"timed out after 0\.1 s"):
            await fetch_token(metadata.settings, timeout_seconds=0.1)


async def test_a_token_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    async with google(tmp_path) as metadata:
        (tmp_path / "token").mkdir()

        with pytest.raises(SecretError, match="token: token cannot be kept there: Is a directory"):
            await fetch_token(metadata.settings)


async def test_the_copy_is_renewed_before_it_expires(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    async with google(tmp_path) as metadata:
        keeping = asyncio.create_task(keep_fresh(metadata.settings, refresh_seconds=0.01))
        try:
            metadata.status = 503
            await until(lambda: "token not renewed retry_in_seconds=0" in caplog.text)
            metadata.status = 200
            await until(path.exists)  # there was none
            for old in (token(1400), "no token"):
                path.write_text(old)
                await until(lambda old=old: path.read_text() != old)  # type: ignore[misc]  # mypy#15459
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    assert path.read_text() == metadata.given[-1]
