"""Errors of a store."""


class StoreError(Exception):
    """Parent of everything the store raises."""


class MessageFormatError(StoreError):
    """Bytes that are no message record."""


class StoreDirectoryError(StoreError):
    """The directory cannot be opened in its present state; nothing was changed in it."""


class StoreLockedError(StoreDirectoryError):
    """Another process holds the store's lock."""


class SideFileError(StoreError):
    """A side file of twinlog is damaged or unknown; the store works without it."""


class StoreNotWritableError(StoreError):
    """The store takes no bytes now, for the reason given; `MessageStore.flags` knows whether that passes by itself."""


class LogFileError(OSError):
    """The next file of the commit log could not be made; nothing was written."""


class NoBufferError(StoreError):
    """No write buffer is free (fastFailIfNoBufferInStorePool); nothing was written, the next append may well be taken."""
