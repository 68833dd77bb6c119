"""Planted faults of a group whose record etcd keeps."""

import math
from collections.abc import Iterator
from unittest.mock import patch

import twinlog.ha.election.election
from scripts.fault_matrix.planted import planted
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.ha.election.election import Asked, Facts
from twinlog.store.role_file import GroupRecord


@planted("the in-sync set shrinks without etcd")
def shrinks_without_etcd() -> Iterator[None]:
    """A version of the record counts at once, as if it were in etcd, and does not get there."""
    with patch.object(EtcdRecord, "is_kept", lambda self, record: True):
        yield


@planted("what the master tells etcd is not looked at")
def sign_is_not_looked_at() -> Iterator[None]:
    """The slave of a pair takes a broken link for a dead master."""
    with patch.object(twinlog.ha.election.election, "_alone", _nothing):
        yield


def _nothing(facts: Facts, group: GroupRecord, asked: Asked) -> str:
    return ""


@planted("a master needs etcd, too")
def master_needs_etcd() -> Iterator[None]:
    """Who does not see etcd holds no lease, as with a leader lock."""
    quorum_at = LeaseRounds.quorum_at

    def at(self: LeaseRounds) -> float:
        return -math.inf if self.outside.why else quorum_at(self)

    with patch.object(LeaseRounds, "quorum_at", at):
        yield
