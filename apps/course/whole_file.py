"""Files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: str | bytes) -> None:
    """`path` holds either what it held or all of `data`, whatever happens. Makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    os.replace(temporary, path)
