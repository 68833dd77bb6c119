"""What docs/reference/compatibility.toml says of mqadmin."""

import tomllib
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.toml"


@cache
def differences() -> dict[str, str]:
    """Why a sub-command prints something else than for RocketMQ, for those that do."""
    commands = tomllib.loads(TABLE.read_text())["mqadmin"]
    return {name: row["difference"] for name, row in commands.items() if row.get("difference")}
