"""Files that are there whole or not at all, whatever happens while they are written."""
from __future__ import annotations

import contextlib
import os
import tempfile
from typing import IO, Iterator, Union

PathLike = Union[str, "os.PathLike[str]"]


@contextlib.contextmanager
def atomic_file(path: PathLike, mode: str = "wb") -> Iterator[IO]:
    """A file to write in; it takes the place of ``path`` when the block ends without an exception.

    The bytes are on the disk (fsync) before the name is, and the name before this returns. Until
    then, and after an exception, a former ``path`` stays as it was. Raises ``OSError`` as ``open``
    does. The file gets the permissions of the one that it replaces, else those of the umask.
    """
    if "w" not in mode:
        raise ValueError("atomic_file: mode %r does not write a new file" % mode)
    path = os.fspath(path)
    folder = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".",
                                             dir=folder)
    try:
        with os.fdopen(descriptor, mode) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _permissions(path))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def write_atomic(path: PathLike, data: bytes) -> None:
    """``data`` as the whole content of ``path``, as :func:`atomic_file` does it."""
    with atomic_file(path) as file:
        file.write(data)


def _permissions(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
