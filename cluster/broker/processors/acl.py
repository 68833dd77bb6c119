"""50 to 54: change and show accounts and white addresses. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8).

Secrets are not shown: RocketMQ's response to 54 has those of all accounts. Without aclEnable RocketMQ responds without a remark
(50, 51, 53) or not at all (52, 54).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import structlog
from attrs import define

from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.security.accounts import ACCOUNTS, GLOBAL_WHITE, plain_account
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.files import AclFiles, delete_account, update_account, update_global_white
from twinlog.cluster.broker.security.service import AclService
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.config.redaction import redact
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin as h
from twinlog.cluster.remoting.request import Reply, Request

log = structlog.get_logger(__name__)

T = TypeVar("T")

_UPDATE_FAILED = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
_DELETE_FAILED = ResponseCode.DELETE_ACL_CONFIG_FAILED
_WHITE_FAILED = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED


@define(eq=False)
class AclProcessor:
    """Accounts and addresses of access control."""

    settings: Settings
    acl: AclService | None  # None: access control is off.

    async def update_and_create_access_config(self, header: h.CreateAccessConfig, request: Request) -> Reply:
        """Add or change an account; the change is in force when it is answered."""
        plain = {
            **plain_account({"accessKey": header.access_key, "secretKey": header.secret_key, "admin": header.admin}),
            "whiteRemoteAddress": header.white_remote_address,
            "defaultTopicPerm": header.default_topic_perm,
            "defaultGroupPerm": header.default_group_perm,
            "topicPerms": _split(header.topic_perms),
            "groupPerms": _split(header.group_perms),
        }
        await self._change(partial(update_account, plain=plain), _UPDATE_FAILED)
        log.warning("an account was set", accessKey=header.access_key, admin=header.admin, by=_who(request))
        return Reply()

    async def delete_access_config(self, header: h.DeleteAccessConfig, request: Request) -> Reply:
        """Delete an account; refused when there is none."""
        if not await self._change(partial(delete_account, access_key=header.access_key), _DELETE_FAILED):
            remark = f"The accesskey[{header.access_key}] corresponding to accessConfig has been deleted failed."
            raise RequestError(_DELETE_FAILED, remark)
        log.warning("an account was deleted", accessKey=header.access_key, by=_who(request))
        return Reply()

    async def update_global_white_addrs_config(self, header: h.UpdateGlobalWhiteAddrsConfig, request: Request) -> Reply:
        """Set the global white addresses of a file; a path that is not one of the files is refused."""
        patterns = _split(header.global_white_addrs) or []
        change = partial(update_global_white, patterns=patterns, path_text=header.acl_file_full_path)
        if not await self._change(change, _WHITE_FAILED):
            remark = f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed."
            raise RequestError(_WHITE_FAILED, remark)
        log.warning("addresses that need no signature were set", addresses=header.global_white_addrs, by=_who(request))
        return Reply()

    def get_broker_acl_config_version(self, header: h.GetBrokerAclConfigVersion, request: Request) -> Reply:
        """Return the version of each file, and that of the default one."""
        files = self._service(ResponseCode.SYSTEM_ERROR).files
        versions = {str(file.path): file.version.to_json() for file in files.rules.files}
        default = versions.get(str(files.default)) or {"counter": 0, "timestamp": self.settings.boot_ms}
        return Reply.success(
            version=fastjson.dumps(default).decode(),
            allAclFileVersion=fastjson.dumps(versions).decode(),
            brokerName=self.settings.config.broker_name,
            brokerAddr=self.settings.address,
            clusterName=self.settings.config.broker_cluster_name,
        )

    def get_broker_cluster_acl_config(self, header: h.GetBrokerClusterAclConfig, request: Request) -> Reply:
        """Return all accounts without their secrets, and the global white addresses."""
        rules = self._service(ResponseCode.SYSTEM_ERROR).rules
        accounts: dict[str, dict[str, Any]] = {}
        for file in rules.files:
            for entry in file.document.get(ACCOUNTS) or ():
                plain = plain_account(entry)
                accounts.setdefault(
                    plain["accessKey"], {name: plain[name] for name in sorted(plain) if plain[name] is not None}
                )
        white = [str(each) for file in rules.files for each in file.document.get(GLOBAL_WHITE) or ()]
        body = {"globalWhiteAddrs": white, "plainAccessConfigs": redact(list(accounts.values()))}
        return shared.json_reply(body)

    def _service(self, code: ResponseCode) -> AclService:
        if self.acl is None:
            raise RequestError(code, "aclEnable=false on this broker, so it has no accounts")
        return self.acl

    async def _change(self, change: Callable[[AclFiles], T], code: ResponseCode) -> T:
        try:
            return await self._service(code).change(change)
        except (AclError, OSError) as error:
            raise RequestError(code, str(error)) from error


def _split(text: str | None) -> list[str] | None:
    """Split as Java does: trailing empty parts are dropped, except a single one."""
    if text is None:
        return None
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _who(request: Request) -> str:
    account = (request.command.ext or {}).get("AccessKey", "a white address")
    return f"{account} at {request.connection.remote_address}"
