"""Note in a JSON file what the suites of Spark gave on this environment's version: FILE REPORT COMMIT SECONDS FOLDER."""

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from count_tests import count  # Beside this file.

if __name__ == "__main__":
    file, report, commit, seconds, folder = sys.argv[1:]
    passed, failed, skipped = count(Path(report))
    results = json.loads(Path(file).read_text()) if Path(file).exists() else {}
    of_version = results.setdefault(version("pyspark"), {})
    of_version[folder] = {
        "commit": commit,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "seconds": int(seconds),
    }
    Path(file).write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n")
    print(json.dumps(of_version[folder]))
