"""Files that are replaced as a whole: a reader finds the old one or the new one, and nothing in between."""

from __future__ import annotations

import glob
import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file, so that whoever reads it finds the old one or the new one, even after a power cut."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or a device, which is not to be replaced
        target.write_bytes(content)
        return
    draft = draft_of(target)
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, f"{os.fspath(path)} cannot be written: {error.strerror}") from None
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name is on disk too
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def draft_of(target: Path) -> Path:
    """The name under which this process writes a file before it replaces the old one."""
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def remove_drafts(path: str | os.PathLike[str]) -> None:
    """Remove what processes that were killed while they wrote have left behind."""
    target = Path(os.path.realpath(path))
    for draft in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        number = draft.name.split(".")[-2]
        if number.isdecimal() and not is_running(int(number)):
            draft.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether there is a process of this number; taken for granted where it cannot be known."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
