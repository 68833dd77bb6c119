"""The archive of scripts/spark-env: packages as .venv has them, twinlog's wheel, and `bin/python`, which runs the node's Python.

    spark_env.py WHEEL ARCHIVE

A virtual environment cannot be packed as it is: its `python` is a link to where Python lies on this machine, and its scripts name
its directory. Spark's own packages stay out, for a cluster has them, in the version of its JVM.
"""

import compileall
import os
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from zlib_ng import gzip_ng_threaded

ROOT = Path(__file__).parents[2]
LOCKS = (ROOT / "requirements/runtime.lock", ROOT / "requirements/spark.lock")
OF_THE_CLUSTER = {"pyspark", "py4j"}
TO_INSTALL = {"pip", "setuptools"}
# Tests and C headers.
UNUSED = re.compile(r"/tests/|^pyarrow/(include|src)/|^pyarrow/.*\.(pxd|pxi|pyx|cc|h)$|^numpy/_core/(include|lib)/")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"lib/python{PYTHON}/site-packages"
LEVEL = 2  # Higher ones make it at most 8 % smaller, and take up to twice as long.

# PYTHONPATH, not pyvenv.cfg, which would have to name the directory of the node's Python.
PROGRAM = f"""\
#!/bin/sh
# A Python of this machine, with twinlog and the packages that it needs. Made by scripts/spark-env.
here=$(cd -- "${{0%/*}}/.." && pwd -P) || exit
version={PYTHON} machine={platform.machine()}
for name in "${{TWINLOG_PYTHON:-python3}}" "python$version" "/usr/bin/python$version" "/usr/local/bin/python$version"; do
    python=$(command -v "$name") || continue
    found=$("$python" -ISc 'import os, sys; print("%d.%d" % sys.version_info[:2], os.uname().machine)') || continue
    [ "$found" = "$version $machine" ] || continue
    export PYTHONPATH="$here/{PACKAGES}${{PYTHONPATH:+:$PYTHONPATH}}" PYTHONNOUSERSITE=1
    exec "$python" "$@"
done
echo "twinlog's environment needs Python $version for $machine, and $(uname -n) has none, as python$version or python3." \
    "Install it there, or name it: spark.executorEnv.TWINLOG_PYTHON=/path/to/python$version" >&2
exit 127
"""
COMMAND = """\
#!/bin/sh
exec "${0%/*}/python" -P -c 'from twinlog.cluster.cli.main import main; main()' "$@"
"""


def locked() -> dict[str, str]:
    """Versions by name, without Spark's packages and those that only install others."""
    found = {}
    for lock in LOCKS:
        found |= dict(re.findall(r"^([\w.-]+)==([^ ]+)", lock.read_text(), re.MULTILINE))
    return {name: version for name, version in found.items() if name not in OF_THE_CLUSTER | TO_INSTALL}


def files_of(name: str, version: str) -> Iterator[tuple[str, Path]]:
    """The files of an installed package, by their names in site-packages. Exits if it is not there in this version."""
    package = metadata.distribution(name)
    if package.version != version:
        sys.exit(
            f"scripts/spark-env: .venv has {name} {package.version}, and {version} is locked. Try: scripts/setup --spark"
        )
    for file in package.files or ():
        inside = str(file)
        if not inside.startswith("../") and not UNUSED.search(inside):
            yield inside, Path(str(package.locate_file(file)))


def pack(wheel: Path, out: Path) -> None:
    """Write the archive. The file appears whole or not at all."""
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with (
            TemporaryDirectory() as unpacked,
            gzip_ng_threaded.open(unfinished, "wb", compresslevel=LEVEL) as zipped,
            tarfile.open(fileobj=zipped, mode="w|") as archive,
        ):
            _add_text(archive, "bin/python", PROGRAM)
            _add_text(archive, "bin/twinlog", COMMAND)
            _add_link(archive, "submit", f"{PACKAGES}/twinlog/cluster/pipeline/submit")
            for name, version in sorted(locked().items()):
                for inside, file in files_of(name, version):
                    if file.exists():  # Bytecode that nobody wrote is listed, too.
                        archive.add(file, f"{PACKAGES}/{inside}", recursive=False, filter=_of_nobody)
            with ZipFile(wheel) as files:
                files.extractall(unpacked)
            compileall.compile_dir(unpacked, quiet=1, stripdir=unpacked)
            archive.add(unpacked, PACKAGES, filter=_of_nobody)
        unfinished.rename(out)
    finally:
        unfinished.unlink(missing_ok=True)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o755, len(text.encode())
    archive.addfile(entry, BytesIO(text.encode()))


def _add_link(archive: tarfile.TarFile, name: str, to: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    archive.addfile(entry)


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without this machine's owner, and readable by everybody."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"{sys.argv[2]}: {Path(sys.argv[2]).stat().st_size} bytes, for Python {PYTHON} on {platform.machine()}")
