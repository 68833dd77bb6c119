"""Errors of etcd. None of them says anything about who holds a key: an error is an outage, never a loss.

EtcdError
  Unavailable      the operation has certainly not happened, or was a read
    LeaseNotFound  the lease has expired or was revoked
  Unknown          a write may have happened, or may still happen
  Refused          the configuration is wrong, here or there: it has certainly not happened, and a person has to do something
"""


class EtcdError(Exception):
    """Parent of all. `cause`: the case in the words of docs/reference/etcd.md; `fix`: what to do next; `endpoint`: its source."""

    def __init__(self, what: str, *, cause: str, fix: str = "", endpoint: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.fix, self.endpoint = what, cause, fix, endpoint

    def __str__(self) -> str:
        where = f"{self.endpoint}: " if self.endpoint else ""
        return f"etcd: {where}{self.what}" + (f". Next: {self.fix}" if self.fix else "")


class Unavailable(EtcdError):
    """etcd does not answer now, and what was asked for has not happened. Ask again later; nothing follows from it."""


class LeaseNotFound(Unavailable):
    """The lease of a put, a swap or a keep-alive is gone: it expired while nobody kept it alive. Grant another."""


class Unknown(EtcdError):
    """A write was sent, and no answer told what came of it.

    A read that still finds the old value proves nothing: the request may be waiting in a member of etcd, and be carried out
    later. Two things settle it: a value with a newer mod_revision than the swap expected, or another swap with the same
    expectation, whose own result is known: etcd does one of the two at most.
    """


class Refused(EtcdError):
    """etcd, or its gateway, refuses us: rights, password, certificates, a gateway that is off. Trying again does not help."""
