"""What can go wrong in a store, for its callers to tell apart."""


class StoreError(Exception):
    """Parent of everything the store raises."""


class MessageFormatError(StoreError):
    """Bytes that are no message record. `reason` says what is wrong with them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreDirectoryError(StoreError):
    """The directory cannot be opened as it lies; nothing was changed in it."""


class StoreLockedError(StoreDirectoryError):
    """Another process holds the store's lock."""


class SideFileError(StoreError):
    """A side file of ours is not what it should be; do without it."""


class StoreNotWritableError(StoreError):
    """The store takes no bytes now; the message says why, `MessageStore.flags` whether that passes by itself."""


class LogFileError(OSError):
    """The next file of the commit log could not be made; nothing was written."""


class NoBufferError(StoreError):
    """No write buffer is free (fastFailIfNoBufferInStorePool); nothing was written, the next append may well be taken."""
