"""Script for spark-submit in tests: jobs one after the other in one JVM, since each JVM takes ten seconds.

    spark-submit submitted_jobs.py '[["audit.py", "MASTER", "SLAVE"], ["daily.py", ..], ..]'

The files are in the same directory, or named with theirs. Prints the exit of each job.
"""

import json
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    for name, *arguments in json.loads(sys.argv[1]):
        file = Path(__file__).parent / name
        sys.argv = [str(file), *arguments]
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as end:
            print(f"{name} ended with {end.code or 0}", flush=True)
