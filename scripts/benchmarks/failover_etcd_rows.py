"""The writer of PostgreSQL below Patroni: numbered rows, one after the other, each acknowledged by its INSERT.

A program for the Python that has psycopg and nothing of ours: failover_etcd_rows.py HOST...
It finds the primary as Patroni's documentation advises a load balancer to: by GET /primary of each member's REST API. libpq is
used directly, as a query without an answer is given up here after a second, without the request to cancel it that psycopg waits
for.
"""

import contextlib
import http.client
import json
import select
import sys
import time

from psycopg import OperationalError, pq

EVERY_S, TRY_S, LOOK_S = 0.05, 1.0, 0.3
CREATE = b"CREATE TABLE IF NOT EXISTS numbers (number bigint PRIMARY KEY)"
DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


def is_primary(host: str) -> bool:
    connection = http.client.HTTPConnection(host, 8008, timeout=LOOK_S)
    try:
        connection.request("GET", "/primary")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def connect(host: str) -> pq.PGconn | None:
    told = f"host={host} port=5432 user=postgres dbname=postgres connect_timeout=2"
    connection = pq.PGconn.connect(told.encode())
    if connection.status == pq.ConnStatus.OK:
        connection.nonblocking = 1
        return connection
    connection.finish()
    return None


def run(connection: pq.PGconn, query: bytes) -> str:
    """SEND_OK, or why not."""
    deadline = time.monotonic() + TRY_S
    try:
        connection.send_query(query)
        connection.flush()
        while connection.is_busy():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([connection.socket], [], [], left)[0]:
                return "no answer"
            connection.consume_input()
        status = "no result"
        while result := connection.get_result():
            said = result.error_message.decode(errors="replace").strip()
            status = "SEND_OK" if result.status in DONE and not connection_warns(connection) else said or "no result"
    except OperationalError as error:
        return str(error).strip()[:80]
    return status[:80]


warned: list[str] = []


def connection_warns(_: pq.PGconn) -> bool:
    """A commit whose wait for the standby was cancelled is told as a success, with a warning: it is not acknowledged."""
    found = bool(warned)
    warned.clear()
    return found


def listen(connection: pq.PGconn) -> None:
    def hear(result: "pq.abc.PGresult") -> None:
        if (result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) or b"") == b"WARNING":
            warned.append("warning")

    connection.notice_handler = hear


def main() -> None:
    hosts = sys.argv[1:]
    connection: pq.PGconn | None = None
    number, due, is_made = 0, time.monotonic(), False
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + EVERY_S, time.monotonic())
        number += 1
        sent, status = time.monotonic_ns(), "no primary"
        if connection is None:
            host = next((each for each in hosts if is_primary(each)), None)
            if host is not None and (connection := connect(host)):
                listen(connection)
                hosts = [host, *(each for each in hosts if each != host)]
        if connection is not None and not is_made:
            is_made = run(connection, CREATE) == "SEND_OK"
        if connection is not None:
            status = run(connection, b"INSERT INTO numbers VALUES (%d)" % number)
            if status != "SEND_OK":
                with contextlib.suppress(OperationalError):
                    connection.finish()
                connection = None
                hosts = hosts[1:] + hosts[:1]
        told = {"number": number, "sent": sent, "came": time.monotonic_ns(), "status": status}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
