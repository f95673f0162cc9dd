"""Files that a framework wrote elsewhere, brought into a checkpoint without copying them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def link_tree(source: Path, target: Path) -> None:
    """
    Link every file below *source* to the same place below *target*; one that is there stays.

    Names that begin with a dot are left out: they are not whole yet. On another file system the
    files are copied.
    """
    for path in source.rglob("[!.]*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)
        except FileExistsError:
            pass
        except OSError:
            shutil.copyfile(path, place)
