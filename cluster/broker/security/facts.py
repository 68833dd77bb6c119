"""What a member tells of its safety in its status (20001), for `twinlog doctor`: counts and file names, never a key."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from twinlog.cluster.broker.security.service import AclService
from twinlog.cluster.remoting.member_status import SecurityStatus

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts

_FOR_OTHERS = 0o077


def security_facts(broker: "BrokerParts") -> SecurityStatus:
    """`acl_enable` is what is in force; counts of rules only where there are some."""
    status = SecurityStatus(
        acl_enable=broker.acl is not None,
        signs=broker.remoting.sign is not None,
        readable_by_others=tuple(str(path) for path in secret_files(broker) if readable_by_others(path)),
    )
    return status if broker.acl is None else _with_rules(status, broker.acl)


def secret_files(broker: "BrokerParts") -> list[Path]:
    """The files of this broker that have secrets in clear."""
    tls = broker.tls_config
    files = [path for path in (tls.server_key, tls.client_key) if path is not None]
    if broker.acl is not None:
        files += [file.path for file in broker.acl.rules.files]
    in_configuration = broker.acl_config.credentials or tls.server_key_password or tls.client_key_password
    if in_configuration and broker.config_file is not None:
        files.append(broker.config_file)
    return files


def _with_rules(status: SecurityStatus, acl: AclService) -> SecurityStatus:
    accounts = acl.rules.accounts.values()
    return evolve(
        status,
        accounts=len(accounts),
        admins=sum(account.admin for account in accounts),
        admins_without_signature=sum(a.admin and a.white.everybody for a in accounts),
        white_for_all=any(pattern.everybody for pattern in acl.rules.white),
        refused_requests=sum(acl.refused.values()),
    )


def readable_by_others(path: Path) -> bool:
    """Whether somebody else on this machine may read it; False for what is not there."""
    try:
        return bool(os.stat(path).st_mode & _FOR_OTHERS)
    except OSError:
        return False
