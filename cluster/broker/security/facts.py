"""What a member tells of its safety in its status (20001), for `twinlog doctor`: counts and file names, never a key."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.broker.security.service import AclService

if TYPE_CHECKING:
    from cluster.broker.parts import BrokerParts

_FOR_OTHERS = 0o077


def security_facts(broker: "BrokerParts") -> dict[str, Any]:
    """`aclEnable` is what is in force. The rest belongs to the rules; without them there is nothing to tell."""
    acl = broker.acl
    facts: dict[str, Any] = {"aclEnable": acl is not None, "signs": broker.remoting.sign is not None}
    return facts if acl is None else facts | _rules(acl)


def _rules(acl: AclService) -> dict[str, Any]:
    accounts = acl.rules.accounts.values()
    paths = [file.path for file in acl.rules.files]
    return {
        "accounts": len(accounts),
        "admins": sum(account.admin for account in accounts),
        "adminsWithoutSignature": sorted(a.access_key for a in accounts if a.admin and a.white.everybody),
        "whiteForAll": any(pattern.everybody for pattern in acl.rules.white),
        "readableByOthers": [str(path) for path in paths if readable_by_others(path)],
        "refusedRequests": sum(acl.refused.values()),
    }


def readable_by_others(path: Path) -> bool:
    """Whether somebody else on this machine may read it; False for what is not there."""
    try:
        return bool(os.stat(path).st_mode & _FOR_OTHERS)
    except OSError:
        return False
