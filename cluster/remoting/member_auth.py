"""Proof that a request comes from a member of the group, and its answer from the member it went to. Pure.

    who asks                               who is asked
    20007: nonce                      ->
                                      <-   nonce, boot id, member id
    request: sender, secret's id,     ->
    counter, MAC
                                      <-   response: MAC

    session key = HMAC-SHA256(secret, label | both nonces | boot id | member id of who is asked)
    MAC         = HMAC-SHA256(session key, direction | code, flag, remark | secret's id, sender, counter | fields in order | body)

Every part is preceded by its length. A counter only rises while its challenge is in force, and a new challenge on the connection
replaces it. So a recorded request is worthless on any other connection, at another process or member, and again on its own; a
recorded response answers nothing else. No clock matters. Nothing is hidden: that is what TLS is for.
"""

import hmac
from collections.abc import Callable
from typing import Protocol

from attrs import define, field, frozen

from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import MemberAuthError
from twinlog.ha.wire.protocol import TICKET_MAX

SENDER, SECRET, COUNTER, MAC = FIELDS = ("twinlogSender", "twinlogSecret", "twinlogCounter", "twinlogMac")
NONCE_BYTES = 16
COUNTER_MAX = (1 << 63) - 1
NAMES_SENDER = "twinlogMember"  # Of 1007: who says so joins the group.
VOTES = frozenset({RequestCode.TWINLOG_LEASE, RequestCode.TWINLOG_PROMISE})
SIGNED_CODES = VOTES | {RequestCode.TWINLOG_ROLE_CHANGE, RequestCode.GET_BROKER_EPOCH}
NOT_PROVEN = "is not proven to be a member of this group"  # In refusals.

_LABEL = b"twinlog member session 1"
_REQUEST, _RESPONSE, _TICKET = b"request", b"response", b"ticket"


class Secret(Protocol):
    """A group secret: GroupSecret."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> bytes: ...


def wants_signature(command: RemotingCommand) -> bool:
    """True for the requests that members sign."""
    if command.code == RequestCode.GET_BROKER_EPOCH:
        return command.ext is not None and NAMES_SENDER in command.ext
    return command.code in SIGNED_CODES


def is_signed(command: RemotingCommand) -> bool:
    """True for a command with any field of a signature, valid or not."""
    return command.ext is not None and not command.ext.keys().isdisjoint(FIELDS)


@frozen
class Challenge:
    """The parts of a session key besides the secret. `member`: the id of the one who is asked."""

    client_nonce: str
    server_nonce: str
    boot_id: str
    member: str


def challenge_request(nonce: str) -> RemotingCommand:
    """The request for a challenge (20007)."""
    return RemotingCommand(RequestCode.TWINLOG_MEMBER_CHALLENGE, ext={"nonce": nonce})


def read_challenge(answer: RemotingCommand, nonce: str) -> Challenge:
    """The challenge in the answer. Raises MemberAuthError."""
    ext = answer.ext or {}
    if answer.code != ResponseCode.SUCCESS or not ext.keys() >= {"nonce", "bootId", "member"}:
        raise MemberAuthError(f"no challenge was given: code {answer.code} {answer.remark or ''}".rstrip())
    return Challenge(nonce, ext["nonce"], ext["bootId"], ext["member"])


@frozen
class Session:
    """A secret under a challenge."""

    secret_id: str
    member: str  # The id of the one who is asked.
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: Secret, challenge: Challenge) -> "Session":
        """The session of both ends that have this secret."""
        parts = challenge.client_nonce, challenge.server_nonce, challenge.boot_id, challenge.member
        return cls(secret.id, challenge.member, _hmac(secret.key, _LABEL, *map(_utf8, parts)))

    def signed(self, sender: str, counter: int) -> "Signed":
        """A request of this session, from its sender."""
        return Signed(self, sender, counter)

    def mac(self, direction: bytes, *parts: bytes | memoryview) -> bytes:
        """MAC over these parts."""
        return _hmac(self._key, direction, *parts)


@frozen
class Signed:
    """One signed request, and the response to it. `sender` is proven on the side that is asked."""

    session: Session
    sender: str
    counter: int

    def sign_request(self, command: RemotingCommand) -> None:
        """Add the signature to a request's fields, which are replaced by a dict of their own."""
        command.ext = {**(command.ext or {}), SENDER: self.sender, SECRET: self.session.secret_id}
        command.ext[COUNTER] = str(self.counter)
        command.ext[MAC] = self._mac(_REQUEST, command)

    def sign_response(self, command: RemotingCommand) -> None:
        """The same for a response."""
        command.ext = dict(command.ext or {})
        command.ext[MAC] = self._mac(_RESPONSE, command)

    def check_request(self, command: RemotingCommand) -> None:
        """Raises MemberAuthError unless the signature fits."""
        self._check(_REQUEST, command, "the signature does not fit the request")

    def check_response(self, command: RemotingCommand) -> None:
        """Take the signature off a response. Raises MemberAuthError for one that is not signed, or wrong."""
        if command.ext is None or MAC not in command.ext:
            remark = f" {command.remark}" if command.remark else ""
            raise MemberAuthError(f"the answer to a signed request is not signed: code {command.code}{remark}")
        self._check(_RESPONSE, command, "the signature does not fit the answer")
        command.ext = {name: value for name, value in command.ext.items() if name != MAC}

    def ticket(self, ticket: int) -> int:
        """The number to show on the HA connection for a ticket in the answer: who only reads the answer cannot make it."""
        mac = self.session.mac(_TICKET, _utf8(self.sender), _number(self.counter), _number(ticket))
        return TICKET_MAX - (int.from_bytes(mac[:8]) >> 2)

    def _check(self, direction: bytes, command: RemotingCommand, why: str) -> None:
        given = (command.ext or {}).get(MAC, "")
        if not hmac.compare_digest(_utf8(self._mac(direction, command)), _utf8(given)):
            raise MemberAuthError(why)

    def _mac(self, direction: bytes, command: RemotingCommand) -> str:
        fields = [(name, value) for name, value in (command.ext or {}).items() if name != MAC]
        parts = [
            *map(_number, (command.code, command.flag)),
            _utf8(command.remark or ""),
            *map(_utf8, (self.session.secret_id, self.session.member, self.sender)),
            _number(self.counter),
            _number(len(fields)),
            *(_utf8(text) for pair in fields for text in pair),
            command.body,
        ]
        return self.session.mac(direction, *parts).hex()


@define(eq=False)
class ClientSession:
    """The side that asks: signs requests on one connection."""

    session: Session
    counter: int = field(default=0, init=False)

    def sign(self, command: RemotingCommand, sender: str) -> Signed:
        """Sign the next request; requests have to be sent in the order in which they are signed."""
        self.counter += 1
        signed = self.session.signed(sender, self.counter)
        signed.sign_request(command)
        return signed


@frozen(eq=False)
class OwnProof:
    """A member's means to sign. `secret`: the one that signs now; None: there is none. `sender`: its id. `is_required`: a member
    without a secret is not asked. `failed` is called with the address that was asked, and why nothing is proven.
    """

    secret: Callable[[], Secret | None]
    sender: Callable[[], str]
    is_required: Callable[[], bool]
    failed: Callable[[str, str], None] = lambda _address, _why: None


@define(eq=False)
class ServerSession:
    """The side that is asked: verifies requests on one connection, under the challenge that it gave there last."""

    challenge: Challenge
    counter: int = field(default=0, init=False)  # Of the last valid request.

    def verify(self, command: RemotingCommand, find: Callable[[str], Secret | None]) -> Signed:
        """Verify a signed request, and take its signature off. Raises MemberAuthError, and nothing is changed.

        find: the accepted secret of an id.
        """
        ext = command.ext or {}
        missing = [name for name in FIELDS if name not in ext]
        if missing:
            raise MemberAuthError(f"the signature lacks {missing[0]}")
        secret = find(ext[SECRET])
        if secret is None:
            raise MemberAuthError(f"the secret {ext[SECRET]:.16} is not known here")
        signed = Session.of(secret, self.challenge).signed(ext[SENDER], _read_counter(ext[COUNTER]))
        signed.check_request(command)
        if signed.counter <= self.counter:
            raise MemberAuthError(
                f"the request was received before: its number is {signed.counter}, after {self.counter}"
            )
        self.counter = signed.counter
        command.ext = {name: value for name, value in ext.items() if name not in FIELDS}
        return signed


def _read_counter(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and 0 < int(text) <= COUNTER_MAX):
        raise MemberAuthError("the signature has no valid counter")
    return int(text)


def _hmac(key: bytes, *parts: bytes | memoryview) -> bytes:
    mac = hmac.new(key, digestmod="sha256")
    for part in parts:
        mac.update(len(part).to_bytes(4))
        mac.update(part)
    return mac.digest()


def _number(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # As the codec writes it.
