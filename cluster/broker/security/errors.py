"""Errors of access control."""


class AclError(ValueError):
    """A request that is not allowed, or invalid rules. The text is RocketMQ's, if it has one."""
