"""The check of members' signatures in front of the handlers: gives challenges, verifies, and refuses.

With `haSecret=required` a vote, a lease and a request to join need a signature from anywhere. So does a role change, unless it
comes from this machine, where whoever runs the member asks. With `optional` requests without a signature are accepted as well:
they are checked as in a group without a secret. A signature that is there and wrong is always refused.
"""

from collections.abc import Callable
from ipaddress import ip_address
from secrets import token_hex
from weakref import WeakKeyDictionary

import structlog
from attrs import define, field

from twinlog.cluster.config.group_secret import GroupSecrets
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import MemberAuthError, RequestError
from twinlog.cluster.remoting.headers.members import GetMemberChallenge
from twinlog.cluster.remoting.limits import LogLimit
from twinlog.cluster.remoting.member_auth import (
    NONCE_BYTES,
    NOT_PROVEN,
    SECRET,
    SENDER,
    Challenge,
    ServerSession,
    is_signed,
    wants_signature,
)
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.request import Reply, Request

log = structlog.get_logger()

NONCE_LENGTH_MAX = 128
NO_SESSION = "there is no challenge on this connection"
NOT_SIGNED = "the request is not signed, and haSecret=required here"
NEXT = (
    "Next: give all members of the group the same file of secrets (haSecretFile), see twinlog group secret --help; while some "
    "have none, haSecret=optional on the others"
)


@define(eq=False)
class MemberCheck:
    """`own_id`: this member's id. `is_required`: haSecret."""

    secrets: GroupSecrets
    own_id: Callable[[], str]
    is_required: Callable[[], bool]
    boot_id: str = field(factory=lambda: token_hex(NONCE_BYTES))
    _sessions: "WeakKeyDictionary[Connection, ServerSession]" = field(factory=WeakKeyDictionary, init=False)
    _lines: LogLimit = field(factory=LogLimit, init=False)

    def get_member_challenge(self, header: GetMemberChallenge, request: Request) -> Reply:
        """Give a challenge, which replaces the connection's last one."""
        if self.secrets.current is None:
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "there is no group secret here (haSecretFile)")
        if len(header.nonce) > NONCE_LENGTH_MAX:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"a nonce has at most {NONCE_LENGTH_MAX} characters")
        nonce = token_hex(NONCE_BYTES)
        challenge = Challenge(header.nonce, nonce, self.boot_id, self.own_id())
        self._sessions[request.connection] = ServerSession(challenge)
        return Reply.success(nonce=nonce, bootId=challenge.boot_id, member=challenge.member)

    def not_proven(self, address: str, why: str) -> None:
        """Note that another member, which this one asked, does not accept it, or is not proven to be one."""
        if (left_out := self._lines.due(f"to {address}")) is not None:
            log.warning(
                "nothing is agreed with a member: the secret does not fit",
                peer=address,
                why=why,
                lines_left_out=left_out,
            )

    def check(self, request: Request) -> Reply | None:
        """Verify a signature, or refuse a request that needs one. For the codes that members sign."""
        command = request.command
        if self.secrets.current is None:
            return None
        if not is_signed(command):
            is_needed = self.is_required() and wants_signature(command)
            if not is_needed or (command.code == RequestCode.TWINLOG_ROLE_CHANGE and is_from_here(request.connection)):
                return None
            return self._refuse(request, NOT_SIGNED)
        try:
            session = self._sessions.get(request.connection)
            if session is None:
                raise MemberAuthError(NO_SESSION)
            request.signed = session.verify(command, self.secrets.find)
        except MemberAuthError as error:
            return self._refuse(request, str(error))
        return None

    def _refuse(self, request: Request, why: str) -> Reply:
        ext, peer = request.command.ext or {}, request.connection.remote_address
        used, sender = ext.get(SECRET, "")[:16], ext.get(SENDER, "")[:64]
        known = ", ".join(self.secrets.ids)
        left_out = self._lines.due(ip_of(peer))
        if left_out is not None:
            log.warning(
                "request refused: it is not proven to be a member's",
                peer=peer,
                code=request.command.code,
                sender=sender or None,
                signed_with=used or None,
                known=known,
                why=why,
                lines_left_out=left_out,
            )
        signed_with = f"; it is signed with {used}" if used else ""
        remark = f"{peer} {NOT_PROVEN}: {why}{signed_with}; known here: {known}. {NEXT}"
        return Reply(ResponseCode.NO_PERMISSION, remark)


def is_from_here(connection: Connection) -> bool:
    """True for a connection that this machine made to itself."""
    ip = ip_of(connection.remote_address)
    return ip == connection.local_ip or ip_address(ip.partition("%")[0]).is_loopback
