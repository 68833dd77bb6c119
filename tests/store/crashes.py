"""A store whose process dies."""

from tests.store.records import put_message

FILE_SIZE = 1 << 16
BODY = bytes(5_000)


def put(store, numbers):
    """Messages to three queues in turn."""
    for number in numbers:
        body = b"%08d" % number + BODY[8:]
        store.put([put_message(body=body, queue_id=number % 3)])
    store.dispatch_pending()


def crash(store):
    """The process dies; what it wrote stays."""
    store.dispatch_pending()
    store._release()
