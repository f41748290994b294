"""A response is the same however it is cut, and no bytes do worse than be refused."""

from hypothesis import example, given
from hypothesis import strategies as st

from agent.request.message import MessageError, Response, parse_url, render_request


def render(chunks: list[bytes], *, counted: bool) -> bytes:
    body = b"".join(chunks)
    if counted:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=300), max_size=5), st.data())
def test_parsing_undoes_rendering_however_the_bytes_are_cut(
    chunks: list[bytes], draw: st.DataObject
) -> None:
    data = render(chunks, counted=draw.draw(st.booleans()))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    response = Response()

    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        assert not response.complete or start == len(data)
        response.feed(data[start:end])

    assert response.complete
    assert response.body == b"".join(chunks)


HEADS = st.sampled_from(
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)


@given(HEADS, st.lists(st.binary(max_size=50), max_size=10))
@example(b"", [b"HTTP/1.1 100 x\n\n" * 3])
def test_any_bytes_are_a_response_or_refused(head: bytes, pieces: list[bytes]) -> None:
    response = Response()
    refusal = ""

    try:
        for piece in [head, *pieces]:
            response.feed(piece)
        response.end()
    except MessageError as error:
        refusal = str(error)

    assert response.complete != bool(refusal)
    assert "\n" not in refusal


@given(st.text(), st.text(max_size=20))
def test_no_text_reaches_a_second_line_of_the_request(method: str, path: str) -> None:
    try:
        head = render_request(method, f"http://localhost/{path}")
    except MessageError:
        return

    assert head.count(b"\r\n") == head.count(b"\n") == (5 if b"Content-Length" in head else 4)
    assert parse_url(f"http://localhost/{path}")[2].isascii()
