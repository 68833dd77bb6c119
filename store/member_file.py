"""Identity of a member, made once in its store directory. ROOT/twinlog/member.

    twinlog-member 1 CRC32HEX
    {"id": "m3f9a0c1b2d4e", "registerCodes": ["5d1e…", …], "madeMs": …, "madeAddress": "10.0.0.2:10911", "group": "broker-a", …}

Addresses, ports, host names and broker.conf may change; the id does not. A member of a group of twinlog 0.2 or older keeps as its
id the address that it had then, by which the group's files name it.

Each start adds a register code. The group's record has the last code that was seen of a member: a directory whose codes do not
contain it is a copy, or older than what the group knows. RocketMQ 5 has a code of that name, for a like reason: it tells apart
who asks for a broker id (BrokerMetadata, TempBrokerMetadata; 5.3.3).

Once the member has a record of a group, the file has that group's name: a start under another brokerName or cluster is refused.

The file is never copied: backup, restore, rewind and reinit leave it out.
"""

import secrets
from pathlib import Path

from attrs import evolve, frozen

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.util.checked_file import decode_checked, encode_checked, load_checked
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.sync import save_durably

NAME, VERSION = "member", 1
CODES_MAX = 16  # Starts; the group has to see one in so many.


@frozen(kw_only=True)
class MemberFile:
    """The identity of a member."""

    id: str
    register_codes: tuple[str, ...] = ()  # One for each start, the newest last.
    made_ms: int = 0  # Wall clock.
    made_address: str = ""  # Of its remoting server, when it was made.
    group: str = ""  # brokerName of its group; "": it was in none yet.
    cluster: str = ""  # brokerClusterName then.


def make_id() -> str:
    """A new id: 48 random bits."""
    return "m" + secrets.token_hex(6)


def make_code() -> str:
    """A new register code."""
    return secrets.token_hex(4)


def new_member(id: str, address: str, now_ms: int) -> MemberFile:
    """A member that has not started yet."""
    if not id:
        raise ValueError("a member has an id")
    return MemberFile(id=id, made_ms=now_ms, made_address=address)


def started(member: MemberFile, code: str) -> MemberFile:
    """The member with another start."""
    return evolve(member, register_codes=(*member.register_codes, code)[-CODES_MAX:])


def in_group(member: MemberFile, group: str, cluster: str) -> MemberFile:
    """The member once it takes part in a group: it stays in its first one."""
    return member if member.group else evolve(member, group=group, cluster=cluster)


def check_group(side: Path, member: MemberFile, group: str, cluster: str) -> None:
    """Raises StoreDirectoryError for a member of another group than broker.conf says."""
    if not member.group or (member.group, member.cluster) == (group, cluster):
        return
    raise StoreDirectoryError(
        f"this directory is that of {member.id}, a member of brokerName {member.group}, brokerClusterName {member.cluster} "
        f"({side / NAME}), and the configuration says brokerName {group}, brokerClusterName {cluster}: its log and its votes "
        "belong to the other group, so that nothing is promised or served here. "
        "Next: correct the two names, or storePathRootDir; to let the directory begin under the new names as a new member: "
        f"{new_member_command(side)}"
    )


def check_is_one_member(side: Path, member: str, noted: str) -> None:
    """Raises StoreDirectoryError for a role file that notes another member than the member file."""
    if noted in ("", member):
        return
    raise StoreDirectoryError(
        f"{side / NAME} is of the member {member}, and {side / 'role'} of {noted}: one of the two files comes from another "
        "directory, and one member must not vote in the place of another, so that nothing is promised or served here. "
        "Next: put back the file that belongs here; if the directory is a copy, make a new member of it: "
        f"{new_member_command(side)}"
    )


def new_member_command(side: Path) -> str:
    """The command that makes a new member of a directory."""
    return f"twinlog log new-member {side.parent}"


def is_successor(codes: tuple[str, ...], seen: str) -> bool:
    """True if a directory with these codes is the one of which `seen` was seen last, and not an older copy of it. A member of
    twinlog 0.2 reports none.
    """
    return not seen or not codes or seen in codes


def encode_member(member: MemberFile) -> bytes:
    """The reverse of decode_member."""
    return encode_checked(NAME, VERSION, to_plain(member))


def decode_member(raw: bytes) -> MemberFile:
    """The member in a file. Raises ValueError when it is damaged or of a later version."""
    member = from_plain(MemberFile, decode_checked(NAME, VERSION, raw))
    if not member.id:
        raise ValueError("it has no id")
    return member


def load_member(side: Path) -> MemberFile | None:
    """The member whose directory this is; None without a file. Raises StoreDirectoryError."""
    advice = (
        "It holds this member's id, by which its group counts its votes. "
        "Next: restore the file; or, if it is lost, and with another member as master (twinlog failover), let the directory "
        f"begin again as a new member: {new_member_command(side)}"
    )
    return load_checked(side / NAME, decode_member, advice)


def save_member(side: Path, member: MemberFile) -> None:
    """Replace the file, durably. Raises OSError."""
    save_durably(side / NAME, encode_member(member))


def member_at_start(side: Path, known_as: str, address: str, now_ms: int) -> MemberFile:
    """The member whose directory this is, with another start, not saved yet. `known_as`: the id by which other files name
    it; "": none does. Raises StoreDirectoryError.
    """
    member = load_member(side) or new_member(known_as or make_id(), address, now_ms)
    return started(evolve(member, made_address=member.made_address or address), make_code())
