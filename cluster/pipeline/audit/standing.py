"""Standing of a ledger: up to where the copies of a log are proved equal, since when, and what is wrong. Plain values."""

from attrs import frozen

from twinlog.cluster.pipeline.audit.findings import documented


@frozen(kw_only=True)
class MemberStanding:
    """Proved part of one member."""

    name: str
    place: str
    first_offset: int = documented("start of its log, when it was last read")
    last_offset: int = documented("end of its log then")
    proved_to: int = documented("its bytes are proved equal to those of another member from the start up to here")
    is_away: bool = documented("the last run could not read it", False)


@frozen(kw_only=True)
class Standing:
    """Proved part of the copies of a log, by the runs of its ledger."""

    run: int = documented("number of the last run; 0: there was none yet", 0)
    kind: str = documented("directories, or live: running brokers", "")
    verdict: str = documented("of the last run, with what was found earlier and is still open", "")
    checked_ms: int = documented("when the last run began; what is said here was so then", 0)
    proved_from: int | None = documented("where the bytes begin that all members have; null: there are none")
    proved_to: int | None = documented(
        "from there up to here all members are proved equal; null: they have no byte in common"
    )
    log_end: int | None = documented("end of the longest log")
    compared_by: str = documented("digests; written: digests that running members keep; samples", "")
    newest_proof_ms: int | None = documented("time of the newest proof")
    oldest_proof_ms: int | None = documented(
        "time of the oldest proof that holds: every byte is proved again within a full pass"
    )
    proved_bytes: int = documented("bytes that are proved equal between two members or more", 0)
    open_findings: int = documented("differences and damage that were found and are not repaired", 0)
    full_pass_seconds: float = documented("time within which every byte is proved again", 0.0)
    new_bytes: int = documented("bytes that the last run compared because no proof covered them", 0)
    again_bytes: int = documented("bytes that it compared again because their proof was the oldest", 0)
    fault_bytes: int = documented("bytes that it compared again because members differed there", 0)
    read_bytes: int = documented("bytes whose digests it took, over all members", 0)
    lost_bytes: int = documented("bytes whose proof ended in it, because a log was cut or replaced", 0)
    members: tuple[MemberStanding, ...] = ()
