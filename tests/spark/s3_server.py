"""An in-memory S3 server (moto) in a process of its own. It records requests, so that tests see what is read.

    python -m tests.spark.s3_server PORT FILE

Each line of the file is a request as JSON: method, path, Range or null.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process, answers

BUCKET = "archive"
# For the reading libraries: any values work, and they search no further.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Asked(NamedTuple):
    """One request. `range`: first and last byte, if given."""

    method: str
    path: str
    range: tuple[int, int] | None


class S3Server(Process):
    """The server as a child process, with one bucket."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.requests = directory / "requests"
        command = [sys.executable, "-m", "tests.spark.s3_server", str(self.port), str(self.requests)]
        root = Path(__file__).parents[2]
        super().__init__("S3 server", command, log=directory / "log", environment={"PYTHONPATH": str(root)})

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: answers(self.port), f"an answer on port {self.port}")
        self.file_system().create_dir(BUCKET)

    def file_system(self) -> Any:
        """A pyarrow file system that can also write."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=f"{HOST}:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def uri(self, path: str) -> str:
        """URI of a path in the bucket, for processes with credentials in their environment."""
        return f"s3://{BUCKET}/{path}?endpoint_override={HOST}:{self.port}&scheme=http&region=us-east-1"

    def upload(self, directory: Path, path: str) -> str:
        """Upload all files of a directory; returns the URI."""
        files = self.file_system()
        for file in sorted(each for each in directory.rglob("*") if each.is_file()):
            with files.open_output_stream(f"{BUCKET}/{path}/{file.relative_to(directory)}") as stream:
                stream.write(file.read_bytes())
        return self.uri(path)

    def asked(self) -> list[Asked]:
        """All requests until now."""
        found = []
        for line in self.requests.read_text().splitlines():
            method, path, text = json.loads(line)
            first, _, last = (text or "").removeprefix("bytes=").partition("-")
            found.append(Asked(method, path, (int(first), int(last)) if text else None))
        return found


App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def noting(app: App, file: Path) -> App:
    """Wrap a WSGI application: each request adds a line."""
    notes = file.open("a", buffering=1)

    def noted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        print(json.dumps([environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE")]), file=notes)
        return app(environ, start_response)

    return noted


def main(arguments: Sequence[str]) -> None:
    """Serve until terminated."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    port, file = arguments
    app = noting(DomainDispatcherApplication(create_backend_app), Path(file))
    make_server(HOST, int(port), app, threaded=True).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
