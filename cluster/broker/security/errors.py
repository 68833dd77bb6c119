"""Errors of access control."""


class AclError(ValueError):
    """A request that is not allowed, or rules that cannot be. The text is RocketMQ's, where it has one."""
