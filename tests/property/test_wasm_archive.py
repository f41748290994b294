"""Archives, beside the standard library's reader."""

import io
import tarfile
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from agent.wasm.fetch.archive import find_file
from tests.fakes.archives import tar

NAMES = st.text(
    st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=200
).filter(lambda name: name.strip("/") == name)
FILES = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=1100)), max_size=4)
FORMS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@given(files=FILES, form=FORMS)
def test_files_are_found_where_tarfile_has_put_them(
    files: list[tuple[str, bytes | None]], form: int
) -> None:
    archive = tar(*files, form=form)

    for name, content in files:
        encoded = name.encode()
        first = next((each for at, each in files if at == name and each is not None), None)
        if content is not None:
            source = io.BytesIO(archive)
            assert source.read(find_file(source, encoded.__eq__)) == first


@given(files=FILES, form=FORMS, cut=st.integers(0, 4000), spoilt=st.binary(max_size=40))
def test_no_bytes_do_harm(
    files: list[tuple[str, bytes | None]], form: int, cut: int, spoilt: bytes
) -> None:
    archive = tar(*files, form=form)

    for body in (archive[:cut], archive[:cut] + spoilt + archive[cut + len(spoilt) :]):
        with suppress(ValueError):
            find_file(io.BytesIO(body), lambda _: False)
