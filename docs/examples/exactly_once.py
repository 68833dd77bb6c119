"""Effects that happen once: the id of each message is stored in the transaction that has its effect.

Messages are delivered at least once: again after a crash, and after a send whose answer was lost. All of these have the same
`message_id`, as the producer made it. If an application itself sends again, give its messages an id of yours as `keys`.

Run it with: NAMESRV_ADDR=127.0.0.1:9876 python exactly_once.py accounts.db
"""

import os
import sqlite3
import sys
from contextlib import closing

from twinlog.client import From, ReceivedMessage, SyncClient, SyncPushConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
SCHEMA = """
CREATE TABLE IF NOT EXISTS applied (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
"""
PAY = "INSERT INTO accounts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET balance = balance + excluded.balance"


def apply(database: sqlite3.Connection, message: ReceivedMessage) -> bool:
    """Pay the amount in the body to the account in the keys; False for a message that was applied before."""
    with database:  # One transaction: both, or neither.
        if not database.execute("INSERT OR IGNORE INTO applied VALUES (?)", (message.message_id,)).rowcount:
            return False
        database.execute(PAY, (message.keys, int(message.body)))
    return True


def main(path: str) -> None:
    """Apply messages until Ctrl-C. A batch is settled when the next one is requested, after its transactions."""
    with (
        closing(sqlite3.connect(path)) as database,
        SyncClient(NAMESRV) as client,
        SyncPushConsumer(client, "accounts", {"Payments": "*"}, start=From.FIRST) as consumer,
    ):
        database.executescript(SCHEMA)
        for batch in consumer:
            try:
                for message in batch:
                    print("applied" if apply(database, message) else "repeated", message.message_id, flush=True)
            except ValueError as error:  # No amount: it will not get better.
                print("refused", error, flush=True)
                batch.dead()


if __name__ == "__main__":
    main(sys.argv[1])
