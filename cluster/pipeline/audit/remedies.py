"""Chooses the `twinlog` command that repairs a finding. Pure: commands are named, not run.

A command is complete except for words in capitals, which only its reader knows: MEMBER is the broker of a directory as `twinlog
list` names it, NEW-DIR and BACKUP-DIR are directories to create.
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from attrs import asdict

from twinlog.cluster.pipeline.audit.completeness import CUT_WITH_RECORDS, CUTS
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember, ReportedFinding


class Mending(NamedTuple):
    """A command line, and a note to read before running it."""

    command: str
    note: str


def with_mending(finding: AuditFinding, members: Mapping[str, AuditedMember]) -> ReportedFinding:
    """Add the command that repairs a finding; `members` by name."""
    found = mending(finding, members)
    return ReportedFinding(**asdict(finding), mend=found.command, mend_note=found.note)


def mending(finding: AuditFinding, members: Mapping[str, AuditedMember]) -> Mending:
    """The command that repairs a finding or, where a person must decide, one that shows what to decide on."""
    member = members.get(finding.member)
    if member is None:
        return Mending("twinlog doctor", "")
    good = members.get(finding.good) if finding.good is not None else None
    if _is_archived(member) and finding.cls not in (FindingClass.LAG, FindingClass.UNREADABLE):
        note = f"{member.name} lies in an archive: make a copy of a store that is right, and put it there."
        return Mending(f"twinlog backup {_directory(good)} BACKUP-DIR", note)
    return _BY_CLASS[finding.cls](finding, member, good)


def _lag(_finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Mending:
    if member.is_master:
        return _follow_other(member, None, "Another member has more than the master")
    return Mending(
        "twinlog wait level", f"No fault: a slave takes what it lacks while it follows its master.{_start(member)}"
    )


def _tail_lost(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Mending:
    if finding.what in CUTS and finding.file is not None:
        size = (finding.end or 0) - int(finding.file.rpartition("/")[2])
        root, *logs = member.place.split(";")
        path = (
            finding.file.rpartition("/")[2]
            if logs and finding.file.startswith("commitlog/")
            else shlex.quote(str(Path(root, finding.file)))
        )
        note = "Stop its broker first; zeros behind the last record are what the file had there."
        if finding.what == CUT_WITH_RECORDS:
            note = "Stop its broker first. The records are lost on every member; rebuild queues and index afterwards."
        return Mending(f"truncate -s {size} {path}", note)
    if member.is_master:
        return _follow_other(member, good, "The master lost its newest messages")
    return Mending("twinlog wait level", f"The slave takes what it lost from its master again.{_start(member)}")


def _parted(_finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Mending:
    """A different history from an offset on."""
    if member.is_master and good is None:
        return _follow_other(member, good, "The master's messages are not those that the others have")
    if not _is_ours(member):
        return _replace(member, good)
    note = "It cuts the slave's log where it parted from its master's; what is cut is kept in twinlog/divergent."
    if member.is_master:
        note = f"{member.name} was the master, and is to follow now. {note}"
    return Mending(f"twinlog rewind {_called(member)}", note + _start(member))


def _damaged(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Mending:
    """Changed bytes that another member has in sound form."""
    if good is None:
        return _differs(finding, member, good)
    if not _is_ours(member):
        return _replace(member, good)
    if finding.cls is FindingClass.BIT_ROT:
        note = (
            "A running member of twinlog finds the damage when it scrubs, and takes the bytes from a member that has them."
            " Where it does not, and it is a slave: twinlog reinit"
        )
        return Mending("twinlog wait healthy", f"{note} {_called(member)}.{_start(member)}")
    if member.is_master:
        return _follow_other(member, good, "The master's log is damaged")
    note = "It puts the slave's log aside and takes its master's from the beginning; the old one is kept."
    return Mending(f"twinlog reinit {_called(member)}", note + _start(member))


def _differs(finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Mending:
    where = _place(member)
    note = "Nothing tells which copy is right: look at both, and compare a third one, a backup for instance."
    if member.is_live:
        return Mending(f"twinlog log diff --live {where} OTHER", note)
    begin = f" --from {finding.offset}" if finding.offset is not None else ""
    return Mending(f"twinlog log dump {where}{begin} --count 1 -o wide --body", note)


def _queue(_finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Mending:
    return _rebuilt(member, "--consumequeue")


def _index(_finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Mending:
    return _rebuilt(member, "--index")


def _rebuilt(member: AuditedMember, what: str) -> Mending:
    note = "Stop its broker first. The log is read, never written; the old files stay until the new ones are whole."
    return Mending(f"twinlog log rebuild {_directory(member)} {what}", note)


def _tables(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Mending:
    """Topics, groups, offsets."""
    if not member.is_master:
        note = "A slave takes topics, groups and offsets from its master every 10 s while it follows."
        return Mending("twinlog wait level", note + _start(member))
    if finding.cls is FindingClass.OFFSETS:
        note = "The master's offsets are what consumers go by. See how far a group is, then move it if that is wrong."
        return Mending("twinlog lag", f"{note} twinlog group reset GROUP TOPIC --to WHERE")
    if good is not None and not good.is_live:
        return _replace(member, good)
    return Mending("twinlog topic list --all", "See which topics are wrong; twinlog topic update TOPIC changes one.")


def _unreadable(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Mending:
    if member.is_live:
        return Mending(f"twinlog doctor {_place(member)}", "It tells why a broker does not answer.")
    if _is_archived(member):
        return Mending("", "See that the address is right and that you may read there, then audit again.")
    note = "See that you may read it, and what the disk says (dmesg). Where the file is lost, make the store anew:"
    return Mending(f"twinlog log verify {_place(member)}", f"{note} {_replace(member, good).command}")


def _follow_other(member: AuditedMember, good: AuditedMember | None, what: str) -> Mending:
    """Make another member the master, and this one its slave."""
    candidate = _called(good) if good is not None else "MEMBER"
    if member.is_live:
        command = f"twinlog switchover --candidate {candidate} --dry-run"
    else:
        command = f"twinlog failover --candidate {candidate} --dry-run"
    note = (
        f"{what}: decide who is right. Whoever has the messages becomes the master; then, for this one: twinlog rewind"
    )
    return Mending(command, f"{note} {_called(member)}, or reinit.")


def _replace(member: AuditedMember, good: AuditedMember | None) -> Mending:
    """Replace a damaged store by a new one."""
    note = f"Makes a store of the good copy for the broker of {member.name}: stop it, and start it on NEW-DIR."
    if not member.is_master:
        note += " It fetches from its master what is newer."
    return Mending(f"twinlog backup {_directory(good)} BACKUP-DIR && twinlog restore BACKUP-DIR NEW-DIR", note)


def _start(member: AuditedMember) -> str:
    return "" if member.is_live or member.is_running else " Start it, if it does not run."


def _is_ours(member: AuditedMember) -> bool:
    return member.software is None or "twinlog" in member.software.lower()


def _called(member: AuditedMember) -> str:
    """Name for commands about running members."""
    return shlex.quote(member.name) if member.is_live else "MEMBER"


def _place(member: AuditedMember) -> str:
    """A directory as commands take it, with separate directories of its log; or an address."""
    root, *logs = member.place.split(";")
    return " ".join([shlex.quote(root), *(f"--commit-log {shlex.quote(log)}" for log in logs)])


def _directory(member: AuditedMember | None) -> str:
    """Name for commands about directories, which must be local."""
    if member is None or _is_archived(member):
        return "GOOD-DIR"
    return "DIR" if member.is_live else _place(member)


def _is_archived(member: AuditedMember) -> bool:
    return "://" in member.place


_BY_CLASS: Mapping[FindingClass, Callable[[AuditFinding, AuditedMember, AuditedMember | None], Mending]] = {
    FindingClass.LAG: _lag,
    FindingClass.TRUNCATED: _tail_lost,
    FindingClass.HOLE: _damaged,
    FindingClass.DIVERGENT: _parted,
    FindingClass.SHIFTED: _damaged,
    FindingClass.SWAPPED: _damaged,
    FindingClass.BIT_ROT: _damaged,
    FindingClass.DIFFERS: _differs,
    FindingClass.QUEUE: _queue,
    FindingClass.INDEX: _index,
    FindingClass.CONFIG: _tables,
    FindingClass.OFFSETS: _tables,
    FindingClass.UNREADABLE: _unreadable,
}
