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


class Repair(NamedTuple):
    """A command line, and a note to read before running it."""

    command: str
    note: str


def with_repair(finding: AuditFinding, members: Mapping[str, AuditedMember]) -> ReportedFinding:
    """Add the command that repairs a finding; `members` by name."""
    found = repair_of(finding, members)
    return ReportedFinding(**asdict(finding), mend=found.command, mend_note=found.note)


def repair_of(finding: AuditFinding, members: Mapping[str, AuditedMember]) -> Repair:
    """The command that repairs a finding or, where a person must decide, one that shows what to decide on."""
    member = members.get(finding.member)
    if member is None:
        return Repair("twinlog doctor", "")
    good = members.get(finding.good) if finding.good is not None else None
    if _is_archived(member) and finding.cls not in (FindingClass.LAG, FindingClass.UNREADABLE):
        note = f"{member.name} is in an archive: copy a sound store, and replace it."
        return Repair(f"twinlog backup {_directory(good)} BACKUP-DIR", note)
    return _BY_CLASS[finding.cls](finding, member, good)


def _lag(_finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Repair:
    if member.is_master:
        return _follow_other(member, None, "Another member has more than the master")
    return Repair(
        "twinlog wait level", f"No fault: a slave fetches missing bytes while it follows its master.{_start(member)}"
    )


def _tail_lost(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Repair:
    if finding.what in CUTS and finding.file is not None:
        name = finding.file.rpartition("/")[2]
        root, *logs = member.place.split(";")
        path = name if logs and finding.file.startswith("commitlog/") else shlex.quote(str(Path(root, finding.file)))
        note = "Stop its broker first; behind its last record the file had zeros."
        if finding.what == CUT_WITH_RECORDS:
            note = "Stop its broker first. The records are lost on every member; rebuild queues and index afterwards."
        return Repair(f"truncate -s {(finding.end or 0) - int(name)} {path}", note)
    if member.is_master:
        return _follow_other(member, good, "The master lost its newest messages")
    return Repair("twinlog wait level", f"The slave fetches the lost bytes from its master.{_start(member)}")


def _diverged(_finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Repair:
    """A different history from an offset on."""
    if member.is_master and good is None:
        return _follow_other(member, good, "The master's messages are not those that the others have")
    if not _is_ours(member):
        return _replace(member, good)
    note = "Truncates the slave's log where it diverged from its master's; the cut bytes are kept in twinlog/divergent."
    if member.is_master:
        note = f"{member.name} was the master, and must follow now. {note}"
    return Repair(f"twinlog rewind {_called(member)}", note + _start(member))


def _damaged(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Repair:
    """Changed bytes that another member has in sound form."""
    if good is None:
        return _differs(finding, member, good)
    if not _is_ours(member):
        return _replace(member, good)
    if finding.cls is FindingClass.BIT_ROT:
        note = (
            "A running twinlog member finds the damage by its scrub, and fetches the bytes from another member."
            " If it does not, and it is a slave: twinlog reinit"
        )
        return Repair("twinlog wait healthy", f"{note} {_called(member)}.{_start(member)}")
    if member.is_master:
        return _follow_other(member, good, "The master's log is damaged")
    note = "Copies the master's log from its start; the slave's old log is kept."
    return Repair(f"twinlog reinit {_called(member)}", note + _start(member))


def _differs(finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Repair:
    where = _place(member)
    note = "Nothing shows which copy is right: inspect both, and compare a third one, such as a backup."
    if member.is_live:
        return Repair(f"twinlog log diff --live {where} OTHER", note)
    begin = f" --from {finding.offset}" if finding.offset is not None else ""
    return Repair(f"twinlog log dump {where}{begin} --count 1 -o wide --body", note)


def _rebuilt(finding: AuditFinding, member: AuditedMember, _good: AuditedMember | None) -> Repair:
    what = "--consumequeue" if finding.cls is FindingClass.QUEUE else "--index"
    note = "Stop its broker first. The log is read, never written; the old files stay until the new ones are complete."
    return Repair(f"twinlog log rebuild {_directory(member)} {what}", note)


def _tables(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Repair:
    """Topics, groups, offsets."""
    if not member.is_master:
        note = "A slave copies topics, groups and offsets from its master every 10 s while it follows."
        return Repair("twinlog wait level", note + _start(member))
    if finding.cls is FindingClass.OFFSETS:
        note = "Consumers use the master's offsets. Check how far a group is, and move it if that is wrong."
        return Repair("twinlog lag", f"{note} twinlog group reset GROUP TOPIC --to WHERE")
    if good is not None and not good.is_live:
        return _replace(member, good)
    return Repair("twinlog topic list --all", "Check which topics are wrong; twinlog topic update TOPIC changes one.")


def _unreadable(finding: AuditFinding, member: AuditedMember, good: AuditedMember | None) -> Repair:
    if member.is_live:
        return Repair(f"twinlog doctor {_place(member)}", "Shows why a broker does not answer.")
    if _is_archived(member):
        return Repair("", "Check the address and your access rights, then audit again.")
    note = "Check your access rights, and the disk's errors (dmesg). If the file is lost, create the store again:"
    return Repair(f"twinlog log verify {_place(member)}", f"{note} {_replace(member, good).command}")


def _follow_other(member: AuditedMember, good: AuditedMember | None, what: str) -> Repair:
    """Make another member the master, and this one its slave."""
    candidate = _called(good) if good is not None else "MEMBER"
    verb = "switchover" if member.is_live else "failover"
    note = f"{what}: decide which copy is right, and make that member the master; then, for this one: twinlog rewind"
    return Repair(f"twinlog {verb} --candidate {candidate} --dry-run", f"{note} {_called(member)}, or reinit.")


def _replace(member: AuditedMember, good: AuditedMember | None) -> Repair:
    """Replace a damaged store by a new one."""
    note = f"Creates a store from the good copy for the broker of {member.name}: stop it, and start it on NEW-DIR."
    if not member.is_master:
        note += " It fetches newer bytes from its master."
    return Repair(f"twinlog backup {_directory(good)} BACKUP-DIR && twinlog restore BACKUP-DIR NEW-DIR", note)


def _start(member: AuditedMember) -> str:
    return "" if member.is_live or member.is_running else " Start it if it is stopped."


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


_BY_CLASS: Mapping[FindingClass, Callable[[AuditFinding, AuditedMember, AuditedMember | None], Repair]] = {
    FindingClass.LAG: _lag,
    FindingClass.TRUNCATED: _tail_lost,
    FindingClass.HOLE: _damaged,
    FindingClass.DIVERGENT: _diverged,
    FindingClass.SHIFTED: _damaged,
    FindingClass.SWAPPED: _damaged,
    FindingClass.BIT_ROT: _damaged,
    FindingClass.DIFFERS: _differs,
    FindingClass.QUEUE: _rebuilt,
    FindingClass.INDEX: _rebuilt,
    FindingClass.CONFIG: _tables,
    FindingClass.OFFSETS: _tables,
    FindingClass.UNREADABLE: _unreadable,
}
