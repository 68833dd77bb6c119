"""Rules about how members fit together: name servers, masters, files. Pure; see health.py."""

from collections.abc import Iterator

from twinlog.cluster.observe.facts import ClusterFacts, MemberFacts
from twinlog.cluster.observe.finding import Finding, Level


def name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    silent = {address: said for address, said in facts.name_servers.items() if isinstance(said, str)}
    for address, why in silent.items():
        yield Finding(
            level=Level.WARNING if len(silent) < len(facts.name_servers) else Level.CRITICAL,
            cause="name server does not answer",
            subject=address,
            what=f"the name server {address} does not answer ({why})",
            fix="start it, or take it out of namesrvAddr",
        )
    views = {address: _view(said) for address, said in facts.name_servers.items() if not isinstance(said, str)}
    if len(set(views.values())) > 1:
        lacking = {address: set().union(*views.values()) - view for address, view in views.items()}
        for address, names in lacking.items():
            if names:
                yield Finding(
                    level=Level.WARNING,
                    cause="name servers disagree",
                    subject=address,
                    what=f"the name server {address} does not know {', '.join(sorted(names))}, another one does",
                    fix="give every broker all name servers in namesrvAddr; a restarted one learns them again within 30 s",
                )
    if not facts.members and not silent:
        yield Finding(
            level=Level.CRITICAL,
            cause="no broker",
            subject=", ".join(facts.name_servers),
            what="no broker is registered",
            fix="start one with: twinlog broker -n HOST:PORT",
        )


def _view(groups: object) -> frozenset[str]:
    assert isinstance(groups, tuple)
    return frozenset(f"{each.broker_name}-{number} ({at})" for each in groups for number, at in each.addresses.items())


def masters(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        masters = facts.masters(name)
        if not masters:
            yield Finding(
                level=Level.CRITICAL,
                cause="no master",
                subject=name,
                what=f"{name} has no master: nothing can be written to it",
                fix="start its master, or look at its log",
            )
        if len(masters) > 1:
            which = " and ".join(each.member.address for each in masters)
            yield Finding(
                level=Level.CRITICAL,
                cause="two masters",
                subject=name,
                what=f"{name} has {len(masters)} masters, {which}: their logs part with every message",
                fix="stop one of them. If it was meant to be a slave, set brokerRole=SLAVE and a brokerId above 0 there",
            )
        numbers = [each.member.broker_id for each in facts.group(name) if each.member.is_registered]
        for number in sorted({number for number in numbers if number and numbers.count(number) > 1}):
            yield Finding(
                level=Level.CRITICAL,
                cause="one brokerId twice",
                subject=name,
                what=f"two members of {name} have the brokerId {number}: the name server shows the one that registered last",
                fix="give each slave a brokerId of its own",
            )


def alone(facts: ClusterFacts) -> Iterator[Finding]:
    """A SYNC_MASTER whose slave is somewhere else, or was started as something else."""
    for name in facts.group_names:
        for master in facts.masters(name):
            if len(facts.group(name)) > 1 or not is_sync(master):
                continue
            others = [
                each.member.name
                for other in facts.group_names
                if other != name and len(facts.group(other)) == 1
                for each in facts.masters(other)
            ]
            hint = f" {', '.join(others)} stands alone, too: was it meant to be the slave of {name}?" if others else ""
            yield Finding(
                level=Level.CRITICAL,
                cause="no slave registered",
                subject=master.member.name,
                what=f"{master.member.name} is a SYNC_MASTER, and no slave of {name} is registered: "
                f"producers hear SLAVE_NOT_AVAILABLE.{hint}",
                fix=f"start a slave with brokerName={name}, brokerRole=SLAVE and a brokerId above 0, at the same name server",
            )


def is_sync(facts: MemberFacts) -> bool:
    role = str(facts.status.get("role") or facts.config.get("brokerRole") or "")
    return role == "SYNC_MASTER"


def followed(facts: ClusterFacts) -> Iterator[Finding]:
    """A slave that was told by hand whom to follow."""
    for name in facts.group_names:
        expected = {str(each.status["haAddress"]) for each in facts.masters(name) if each.status.get("haAddress")}
        for each in facts.group(name):
            followed = (each.status.get("master") or {}).get("haAddress")
            if each.member.role == "slave" and followed and expected and followed not in expected:
                yield Finding(
                    level=Level.WARNING,
                    cause="follows another address",
                    subject=each.member.name,
                    what=f"{each.member.name} follows {followed}; its master tells slaves to use {', '.join(sorted(expected))}",
                    fix="see its haMasterAddress and the master's brokerIP2 and haListenPort",
                )


def file_sizes(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        sizes = {each.member.name: _file_size(each) for each in facts.group(name)}
        known = {member: size for member, size in sizes.items() if size is not None}
        if len(set(known.values())) > 1:
            yield Finding(
                level=Level.CRITICAL,
                cause="other file size",
                subject=name,
                what=f"the members of {name} have commit log files of different size: "
                + ", ".join(f"{member} {size}" for member, size in known.items()),
                fix="set mappedFileSizeCommitLog to the master's on the slave, and let it begin anew with an empty store",
            )


def _file_size(facts: MemberFacts) -> int | None:
    told = facts.status.get("fileSize")
    return told if isinstance(told, int) else facts.number("mappedFileSizeCommitLog")


def versions(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        kinds = {each.member.name: each.is_twinlog for each in facts.group(name) if each.runtime}
        foreign = sorted(member for member, ours in kinds.items() if not ours)
        if foreign and len(foreign) < len(kinds):
            yield Finding(
                level=Level.NOTE,
                cause="mixed group",
                subject=name,
                what=f"{', '.join(foreign)} in {name} is RocketMQ's: what it acknowledges it has not verified",
            )
