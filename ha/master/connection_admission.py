"""The door of the HA port: who is let in, who waits in the lobby, who is sent away, and what is said of it.

    accepted -> too many? -> admitted: served    unknown: lobby -> registered meanwhile: served    else: refused

Nobody is waited for here. RocketMQ takes whoever comes, with two threads and a buffer of 1 MiB each.
"""

import socket
from collections.abc import Callable, Collection, Mapping

import structlog
import trio
from attrs import define, field

from twinlog.ha.config import HAConfig
from twinlog.ha.errors import Cause
from twinlog.ha.master.accept import Limits, Seat, must_leave
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.master.log_limit import LogLimit
from twinlog.ha.master.pending_connections import Guest, Lobby
from twinlog.ha.policy.admission import Admission, Refusals, parse_networks
from twinlog.ha.wire.protocol import NO_REQUEST_YET

log = structlog.get_logger()


@define(eq=False)
class Reception:
    """`connections` are those that are served now, oldest first, with what ends them; `serve` adds one more at once."""

    config: HAConfig
    transfer: GroupTransferService
    connections: Mapping[HAConnection, trio.CancelScope]
    serve: Callable[[socket.socket, str, str], None]
    ask_members: Callable[[], None]
    has_record: Callable[[], bool] = lambda: (
        False
    )  # The group's record says who its members are, and who may be elected.
    welcome: Callable[[], Collection[str]] = lambda: ()  # IPs of slaves that may follow before the record has them.
    admission: Admission = field(init=False)
    lobby: Lobby = field(init=False)
    refusals: Refusals = field(factory=Refusals, init=False)
    _leaving: set[HAConnection] = field(factory=set, init=False)  # Told to go, and not yet gone.
    _log_limit: LogLimit = field(factory=LogLimit, init=False)

    def __attrs_post_init__(self) -> None:
        self.admission = Admission(parse_networks(self.config.allowed_slaves))
        self.lobby = Lobby(self.config, self.admission.admits, self.serve, self._refuse_guest, self.ask_members)

    def take(self, accepted: socket.socket, address: str, ip: str) -> None:
        """Take a connection that has just come."""
        admitted = self.admission.admits(ip)
        if not self._make_room(ip, admitted=admitted):
            accepted.close()
            self.refused(address, ip, "too_many", "too many connections: haConnectionsMax, haConnectionsPerAddressMax")
        elif admitted:
            self.serve(accepted, address, ip)
        else:
            self.lobby.take(accepted, address, ip)

    def members_changed(self, ips: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave. Who may follow now is let in, who no longer may
        has to leave.
        """
        self.admission.members_changed(ips, self.welcome())
        self.recount()
        for connection in list(self.connections):
            if connection not in self._leaving and not self.admission.admits(connection.ip):
                self._end(connection)
                self.note("slave is registered no longer, its connection is closed", peer=connection.address)
        self.lobby.members_changed()

    def recount(self) -> None:
        """Say anew whose acknowledgements count: whoever is connected from haAllowedSlaves is a matter of now.

        In a group with a record that is no reason to count: a member may be elected without having heard of such a slave.
        """
        served = (each.ip for each in self.connections if each.request_offset != NO_REQUEST_YET)
        voices = self.admission.registered if self.has_record() else self.admission.voices(served)
        self.transfer.members_changed(voices)

    def slave_connected(self, connection: HAConnection) -> None:
        """Note that a connection has made its request, and is served now."""
        self.refusals.served(connection.ip)
        if self.admission.is_allowed(connection.ip):
            self.recount()
        of_this_ip = sum(
            each.ip == connection.ip and each.request_offset != NO_REQUEST_YET for each in self.connections
        )
        if of_this_ip > self.transfer.registered_with(connection.ip):
            self.ask_members()  # It may be one that has only just registered.
        self.note("slave connected", peer=connection.address, request_offset=connection.request_offset)

    def gone(self, connection: HAConnection) -> None:
        """Forget a connection that has ended."""
        self._leaving.discard(connection)
        if self.admission.is_allowed(connection.ip):
            self.recount()

    def refused(self, address: str, ip: str, cause: Cause, why: str) -> None:
        """Count a refusal, and say so once for each IP and cause."""
        if self.refusals.note(ip, cause, why, trio.current_time()):
            self.note("slave refused", always=self.admission.admits(ip), peer=address, cause=cause, why=why)

    def note(self, event: str, *, always: bool = True, **details: object) -> None:
        """Log a line; without `always` only now and then."""
        if always or self._log_limit.allows(trio.current_time()):
            if self._log_limit.suppressed:
                details["lines_suppressed"] = self._log_limit.suppressed
                self._log_limit.suppressed = 0
            log.info(event, **details)

    @property
    def has_strangers(self) -> bool:
        """Whether somebody asks for the log who may be a slave that has only just registered."""
        counted = {slave.address for slave in self.transfer.slaves if slave.counted}
        return any(guest.asked_at is not None for guest in self.lobby.guests.values()) or any(
            each.request_offset != NO_REQUEST_YET and each.address not in counted for each in self.connections
        )

    def _refuse_guest(self, guest: Guest) -> None:
        silent = "made no request; " if guest.asked_at is None else ""
        self.refused(guest.address, guest.ip, "stranger", silent + self.admission.why_not(guest.ip))

    def _make_room(self, ip: str, *, admitted: bool) -> bool:
        guests = list(self.lobby.guests.values())
        served = [each for each in self.connections if each not in self._leaving]
        limits = Limits(total=self.config.connections_max, per_address=self.config.connections_per_address_max)
        seats = [Seat(guest.ip, admitted=False, has_request=guest.asked_at is not None) for guest in guests]
        seats += [Seat(each.ip, admitted=True, has_request=each.request_offset != NO_REQUEST_YET) for each in served]
        leavers = must_leave(seats, Seat(ip, admitted=admitted, has_request=False), limits)
        for at in leavers or ():
            if at < len(guests):
                self.lobby.send_away(guests[at])
            else:
                self._end(served[at - len(guests)])
        return leavers is not None

    def _end(self, connection: HAConnection) -> None:
        self._leaving.add(connection)
        self.connections[connection].cancel()
