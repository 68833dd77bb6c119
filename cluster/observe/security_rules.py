"""Rules about security: RocketMQ's defaults trust every client that can connect; these rules show where. See rules.py."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.remoting.member_status import SecurityStatus
from twinlog.cluster.remoting.names import ip_of

_EVERYWHERE = ("0.0.0.0", "::", "")


def access(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        name, security = each.member.name, _security(each)
        if each.config.get("aclEnable") == "false" and is_reachable(each):
            yield _warning(
                each,
                "no access control",
                f"{name} accepts every request from every client: messages, topics, configuration",
                "set aclEnable=true with accounts in conf/plain_acl.yml, or let a firewall decide who connects",
            )
        if security.white_for_all:
            yield _warning(
                each,
                "access control without effect",
                f"globalWhiteRemoteAddresses of {name} has an entry for all addresses: no request is checked",
                "name the addresses that need no signature, or none",
            )
        if admins := security.admins_without_signature:
            yield _warning(
                each,
                "administrator without password",
                f"every client that names the accessKey of one of {admins} accounts of {name} is an administrator: "
                "whiteRemoteAddress is all addresses",
                "leave whiteRemoteAddress empty, or name the administrator's own address",
            )
        if security.acl_enable and not security.admins and not security.white_for_all:
            yield _warning(
                each,
                "no administrator",
                f"no account of {name} has admin: true; topics, groups and roles cannot be changed by request",
                "set admin: true for one account in plain_acl.yml; it is read within 5 s",
            )
        if security.acl_enable and not security.signs and len(facts.group(each.member.group)) > 1:
            yield _warning(
                each,
                "unsigned members",
                f"{name} signs none of its own requests: other members refuse them unless its address is white there",
                "set innerClientAuthenticationCredentials to an admin account that all members know",
            )


def encryption(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        mode, test = each.config.get("tls.server.mode"), each.config.get("tls.test.mode.enable")
        if mode is None or not is_reachable(each):
            continue
        name = each.member.name
        if mode != "enforcing":
            signed = " Requests are signed, but can be read and sent again." if _security(each).acl_enable else ""
            yield Finding(
                level=Level.WARNING if signed else Level.NOTE,
                cause="plain connections",
                subject=name,
                what=f"{name} takes connections without TLS (tls.server.mode={mode}).{signed}",
                fix="set tls.server.mode=enforcing once all clients have tls.enable=true",
            )
        has_files = test == "false" or (not test and each.config.get("tls.server.certPath"))
        if mode != "disabled" and not has_files:
            yield Finding(
                level=Level.WARNING if mode == "enforcing" else Level.NOTE,
                cause="no certificate",
                subject=name,
                what=f"{name} makes itself a certificate at each start, which no client can check",
                fix="set tls.server.certPath and tls.server.keyPath",
            )


def replication_port(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        allowed = each.config.get("haAllowedSlaves", "")
        if any(_is_everybody(text) for text in allowed.replace(";", ",").split(",")):
            yield _warning(
                each,
                "HA port open to all",
                f"haAllowedSlaves={allowed} of {each.member.name} sends the whole log to every client, and trusts its "
                "acknowledgements",
                "name the slaves' own addresses; registered slaves need no entry",
            )
        elif each.config and not each.is_twinlog and is_reachable(each):
            yield Finding(
                level=Level.NOTE,
                cause="HA port open to all",
                subject=each.member.name,
                what=f"{each.member.name} is RocketMQ: its HA port sends the whole log to every client",
                fix="let a firewall decide who reaches that port",
            )


def secret_files(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        for path in _security(each).readable_by_others:
            yield _warning(
                each,
                "secrets readable",
                f"{path} of {each.member.name} holds secrets in clear, and other users of that machine can read it",
                f"chmod 600 {path}",
            )


def group_secrets(facts: ClusterFacts) -> Iterator[Finding]:
    """Members that do not prove who they are, or not to each other; and how far a rotation is."""
    for name in facts.group_names:
        ours = [each for each in facts.group(name) if each.is_twinlog]
        having = [each for each in ours if each.status.secret_ids]
        lacking = [each for each in ours if not each.status.secret_ids]
        if having:
            yield from _lacking_secret(name, lacking, having)
            yield from _unfit_secrets(having)
            yield from _rotation(name, having)
        elif len(ours) > 1:
            yield Finding(
                level=Level.NOTE,
                cause="no group secret",
                subject=name,
                what=f"members of {name} do not prove who they are: who sends from the IP address of one may vote in its place",
                fix="give them a secret, with haSecret=optional first: twinlog group secret new FILE",
            )


def _lacking_secret(name: str, lacking: list[MemberFacts], having: list[MemberFacts]) -> Iterator[Finding]:
    strict = [each for each in having if each.status.secret_required is not False]
    if lacking:
        consequence = f"their votes and HA connections are refused by {_names(strict)}"
        yield Finding(
            level=Level.WARNING if strict else Level.NOTE,
            cause="member without group secret",
            subject=name,
            what=f"{name} has members without a group secret, {_names(lacking)}: "
            + (consequence if strict else "haSecret=optional lets them take part for now"),
            fix="copy the file of the others to them, name it with haSecretFile in broker.conf, and restart them",
        )
    elif len(strict) < len(having):
        lax = [each for each in having if each not in strict]
        yield Finding(
            level=Level.NOTE,
            cause="group secret not required",
            subject=name,
            what=f"all members of {name} have a group secret, but who has none is let in by {_names(lax)}: haSecret=optional",
            fix="for each of them: twinlog config set MEMBER haSecret=required",
        )


def _unfit_secrets(having: list[MemberFacts]) -> Iterator[Finding]:
    for each in having:
        if refusing := [other for other in having if _ids(each)[0] not in _ids(other)]:
            yield _warning(
                each,
                "group secrets do not fit",
                f"{each.member.name} signs with the group secret {_ids(each)[0]}, which is not accepted by {_names(refusing)}",
                "copy one file to all of them, see its ids with: twinlog group secret show FILE",
            )


def _rotation(name: str, having: list[MemberFacts]) -> Iterator[Finding]:
    ids = dict.fromkeys(id for each in having for id in _ids(each))
    if len(ids) > 1:
        yield Finding(
            level=Level.NOTE,
            cause="group secret rotation",
            subject=name,
            what=f"{name} has several group secrets: " + "; ".join(_use_of(id, having) for id in ids),
            fix="once all accept the new one: twinlog group secret use FILE ID; once all sign with it: twinlog group secret drop "
            "FILE; copy the file to all members each time",
        )


def _use_of(id: str, having: list[MemberFacts]) -> str:
    signing = [each for each in having if _ids(each)[0] == id]
    lacking = [each for each in having if id not in _ids(each)]
    signs = "all sign with it" if len(signing) == len(having) else f"signing: {_names(signing) or 'none'}"
    return f"{id} ({signs}, {f'not accepted by {_names(lacking)}' if lacking else 'all accept it'})"


def _ids(each: MemberFacts) -> tuple[str, ...]:
    return each.status.secret_ids or ()


def _names(members: list[MemberFacts]) -> str:
    return ", ".join(each.member.name for each in members)


def is_reachable(each: MemberFacts) -> bool:
    """True if other machines can connect."""
    host = each.config.get("bindAddress", ip_of(each.member.address))
    if host in _EVERYWHERE:
        return True
    try:
        return not ip_address(host.partition("%")[0]).is_loopback
    except ValueError:  # A name.
        return host != "localhost"


def _is_everybody(text: str) -> bool:
    try:
        return ip_network(text.strip(), strict=False).prefixlen == 0
    except ValueError:
        return False


def _security(each: MemberFacts) -> SecurityStatus:
    return each.status.security or SecurityStatus()


def _warning(each: MemberFacts, cause: str, what: str, fix: str) -> Finding:
    return Finding(level=Level.WARNING, cause=cause, subject=each.member.name, what=what, fix=fix)
