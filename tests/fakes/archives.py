"""What modules come in."""

import gzip
import io
import tarfile


def tar(*files: tuple[str, bytes | None], form: int = tarfile.DEFAULT_FORMAT) -> bytes:
    """Return an archive of files by name; one without content is a directory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def tar_gz(*files: tuple[str, bytes | None]) -> bytes:
    """Return a layer of an image, the same for the same files at any time."""
    return gzip.compress(tar(*files), mtime=0)
