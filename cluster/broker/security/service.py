"""Access control: the check before each request, and the reload of changed files.

    1 the IP is white for all -> allowed           5 the signature differs -> refused
    2 no AccessKey -> refused                      6 it sends to the trace topic -> allowed
    3 no such account -> refused                   7 it needs an administrator -> refused
    4 the IP is white for the account -> allowed   8 permissions of what it names

Sources: PlainPermissionManager.validate, checkPerm (RocketMQ 4.9.8). Unlike there, only an administrator can see or
change accounts or roles, even from the account's white address; and a signature that covers _UNIQUE_KEY_QUERY is valid, too.
"""

import hmac
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.security.accounts import Account, Rules
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.files import AclFiles
from twinlog.cluster.broker.security.permission import (
    PUB,
    check_fields,
    is_guarded,
    is_permitted,
    needed_by,
    needs_admin,
    resource_text,
)
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.limits import LogLimit
from twinlog.cluster.remoting.names import RETRY_PREFIX, TRACE_TOPIC, ip_of
from twinlog.cluster.remoting.request import Reply
from twinlog.cluster.remoting.signing import ACCESS_KEY, SIGNATURE, remember_order, signed_fields

log = structlog.get_logger(__name__)

RELOAD_SECONDS = 5.0
FIELDS_MAX = 1_024  # Ours; requests of RocketMQ have about twenty.
_ADDRESSES_MAX = 10_000
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
_FRAME = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java)"

T = TypeVar("T")


@define(eq=False)
class AclService:
    """Access control of a broker. RemotingServer calls `check`."""

    files: AclFiles
    refused: Counter[str] = field(factory=Counter, init=False)  # By IP; bounded.
    _white: dict[str, bool] = field(factory=dict, init=False)  # By IP:PORT: True when all requests are allowed.
    _lines: LogLimit = field(factory=lambda: LogLimit(keys_max=_ADDRESSES_MAX), init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    @property
    def rules(self) -> Rules:
        return self.files.rules

    def load(self) -> None:
        """Load the rules at the start. Raises AclError for an invalid file, OSError."""
        self.files.load_first()
        if not self.rules.accounts and not self.rules.white:
            log.warning("aclEnable=true without any account: all requests are refused", file=str(self.files.default))

    async def run(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await trio.sleep(RELOAD_SECONDS)
            await self.reload()

    async def reload(self) -> None:
        """Reload changed files. Unreadable ones are ignored."""
        async with self._lock:
            try:
                if await trio.to_thread.run_sync(self.files.load):
                    self._white.clear()
            except OSError as error:
                log.error("access rules cannot be read: the last ones stay in force", why=str(error))

    async def change(self, change: Callable[[AclFiles], T]) -> T:
        """Change the files in a thread, one change at a time. Raises AclError, OSError."""
        async with self._lock:
            try:
                return await trio.to_thread.run_sync(change, self.files)
            finally:
                self._white.clear()

    def check(self, connection: Connection, command: RemotingCommand) -> Reply | None:
        """Check a request; None allows it. Called for each request, so it must be fast."""
        address = connection.remote_address
        white = self._white.get(address)
        if white is None:
            if len(self._white) >= _ADDRESSES_MAX:
                self._white.clear()
            white = self._white[address] = self.rules.is_white(ip_of(address))
        if white:
            return None
        try:
            self._require(ip_of(address), command)
        except AclError as error:
            self._note_refused(ip_of(address), str(error))
            return Reply(ResponseCode.SYSTEM_ERROR, f"{_EXCEPTION}: {error}, {_FRAME}")
        return None

    def _require(self, ip: str, command: RemotingCommand) -> None:
        ext = command.ext
        key = ext.get(ACCESS_KEY) if ext else None
        if ext is None or key is None:
            raise AclError("No accessKey is configured")
        if len(ext) > FIELDS_MAX:
            raise AclError(f"a request with {len(ext)} fields; at most {FIELDS_MAX} are allowed")
        account = self.rules.accounts.get(key)
        if account is None:
            raise AclError(f"No acl config for {key[:128]}")
        if account.white.matches(ip):
            if is_guarded(command):
                _require_admin(account, command.code)
            return
        if not is_signed(account, ext, command.body):
            raise AclError(f"Check signature failed for accessKey={key}")
        require_permissions(account, command)
        check_fields(command)

    def _note_refused(self, ip: str, why: str) -> None:
        if len(self.refused) < _ADDRESSES_MAX or ip in self.refused:
            self.refused[ip] += 1
        if self._lines.due(ip) is not None:
            log.warning("requests are refused", ip=ip, why=why, count=self.refused[ip])


def is_signed(account: Account, ext: dict[str, str], body: bytes | memoryview) -> bool:
    """True when the signature is this account's, over all fields or over those that 4.9 servers use."""
    given = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    for without in ("", _UNIQUE_KEY_QUERY) if _UNIQUE_KEY_QUERY in ext else ("",):
        if hmac.compare_digest(account.mac(signed_fields(ext, without=without), body), given):
            remember_order(ext, without=without)
            return True
    return False


def require_permissions(account: Account, command: RemotingCommand) -> None:
    """Raises AclError for the first permission that the account lacks."""
    needed = needed_by(command)
    if needed.get(TRACE_TOPIC) == PUB:
        return
    if needs_admin(command):
        _require_admin(account, command.code)
    if account.admin and account.permissions is None:
        return
    permissions = account.permissions or {}
    for resource, permission in needed.items():
        owned = permissions.get(resource)
        if owned is None:
            owned = account.default_group if resource.startswith(RETRY_PREFIX) else account.default_topic
        if not is_permitted(permission, owned):
            raise AclError(f"No default permission for {resource_text(resource)}")


def _require_admin(account: Account, code: int) -> None:
    if not account.admin:
        raise AclError(f"Need admin permission for request code={int(code)}, but accessKey={account.access_key} is not")


def acl_service(config: AclConfig, now_ms: Callable[[], int]) -> AclService | None:
    """Make the service; None without access control. Raises AclError when the directory of the rules is not set."""
    if not config.enable:
        return None
    home = config.home or os.environ.get("ROCKETMQ_HOME")
    if not home:
        raise AclError("aclEnable=true needs the directory of conf/plain_acl.yml: set rocketmqHome, or ROCKETMQ_HOME")
    directory = Path(os.path.abspath(Path(home).expanduser()))
    return AclService(AclFiles(directory, directory / config.file, now_ms))
