"""Checkpoints as a kill leaves them."""

from pathlib import Path


def uncommitted(checkpoint: Path) -> None:
    """As after a kill -9 between the last batch's rows and its end in the checkpoint: it comes again."""
    last = max((checkpoint / "commits").iterdir(), key=lambda file: int(file.name) if file.name.isdecimal() else -1)
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
