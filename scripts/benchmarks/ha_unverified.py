"""`twinlog` whose slaves check no CRCs: what verification costs is what this one is quicker. For the benchmark alone."""

from functools import partial
from typing import Any

import twinlog.ha.slave.replica
import twinlog.store.record.column_scan
from twinlog.cluster.cli.main import main


def unchecked(scan: Any, *args: Any, check_crc: bool, **options: Any) -> Any:
    return scan(*args, check_crc=False, **options)


if __name__ == "__main__":
    for module, name in (
        (twinlog.ha.slave.replica, "scan_records"),
        (twinlog.store.record.column_scan, "scan_columns"),
    ):
        setattr(module, name, partial(unchecked, getattr(module, name)))
    main()
