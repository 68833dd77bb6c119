"""What a member tells of its safety in its status (20001), for `twinlog doctor`: counts and file names, never a key."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.cluster.broker.security.service import AclService

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts

_FOR_OTHERS = 0o077


def security_facts(broker: "BrokerParts") -> dict[str, Any]:
    """`aclEnable` is what is in force; what belongs to the rules is told only where there are some."""
    acl = broker.acl
    facts = {
        "aclEnable": acl is not None,
        "signs": broker.remoting.sign is not None,
        "readableByOthers": [str(path) for path in secret_files(broker) if readable_by_others(path)],
    }
    return facts if acl is None else facts | _rules(acl)


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


def _rules(acl: AclService) -> dict[str, Any]:
    accounts = acl.rules.accounts.values()
    return {
        "accounts": len(accounts),
        "admins": sum(account.admin for account in accounts),
        "adminsWithoutSignature": sum(a.admin and a.white.everybody for a in accounts),
        "whiteForAll": any(pattern.everybody for pattern in acl.rules.white),
        "refusedRequests": sum(acl.refused.values()),
    }


def readable_by_others(path: Path) -> bool:
    """Whether somebody else on this machine may read it; False for what is not there."""
    try:
        return bool(os.stat(path).st_mode & _FOR_OTHERS)
    except OSError:
        return False
