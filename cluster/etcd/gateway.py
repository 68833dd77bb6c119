"""etcd's JSON gateway: requests to paths and bodies, replies to values, refusals to errors. No socket, no clock.

Each operation is a POST of JSON. Keys and values are base64; 64-bit numbers are strings; fields that are 0, false or empty are
left out: `"succeeded": false` too. An error is JSON with `code` (gRPC's) and `message`, or plain text from what stands before
the gateway. Sources: api/etcdserverpb/rpc.proto, api/v3rpc/rpctypes/error.go and server/embed/serve.go, etcd 3.4 to 3.7.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import frozen

from twinlog.cluster.etcd.errors import EtcdError, LeaseNotFound, Refused, Unavailable, Unknown
from twinlog.cluster.etcd.protocol import (
    Changed,
    Event,
    Header,
    KeyValue,
    KeyValues,
    Lease,
    NotSwapped,
    Put,
    Status,
    Swapped,
)

Json = Mapping[str, Any]


class Effect(Enum):
    """The effect of sending a request a second time."""

    NONE = "none"  # A read, or as harmless.
    REPEATABLE = "repeatable"  # A write that may follow itself, or be done twice.
    ONCE = "once"  # A write that could meet its own effect.


@frozen
class Call:
    """A request. `what` names it in errors."""

    what: str
    path: str
    body: Json
    effect: Effect


def encoded(text: str | bytes) -> str:
    """The base64 of a key or a value."""
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


def end_of(prefix: str) -> str:
    """The first key behind all those that start with the prefix, in base64 ("a/" -> "a0")."""
    key = prefix.encode().rstrip(b"\xff")
    return encoded(key[:-1] + bytes([key[-1] + 1]))


def get(key: str) -> Call:
    return Call(f"get {key}", "/v3/kv/range", {"key": encoded(key)}, Effect.NONE)


def get_prefix(prefix: str) -> Call:
    body = {"key": encoded(prefix), "range_end": end_of(prefix)}
    return Call(f"get all of {prefix}", "/v3/kv/range", body, Effect.NONE)


def put(key: str, value: bytes, lease: int) -> Call:
    return Call(f"put {key}", "/v3/kv/put", _put(Put(key, value, lease)), Effect.ONCE)


def swap(key: str, expected: int, puts: Sequence[Put]) -> Call:
    body = {
        "compare": [{"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(expected)}],
        "success": [{"request_put": _put(each)} for each in puts],
        "failure": [{"request_range": {"key": encoded(key)}}],
    }
    return Call(f"swap {key}", "/v3/kv/txn", body, Effect.ONCE)


def delete(key: str) -> Call:
    return Call(f"delete {key}", "/v3/kv/deleterange", {"key": encoded(key)}, Effect.ONCE)


def grant(ttl: int) -> Call:
    return Call("grant a lease", "/v3/lease/grant", {"TTL": str(ttl)}, Effect.REPEATABLE)


def keep_alive(lease: int) -> Call:
    return Call(f"keep lease {lease:x} alive", "/v3/lease/keepalive", {"ID": str(lease)}, Effect.NONE)


def revoke(lease: int) -> Call:
    return Call(f"revoke lease {lease:x}", "/v3/lease/revoke", {"ID": str(lease)}, Effect.REPEATABLE)


def watch(key: str, start_revision: int) -> Call:
    body = {"create_request": {"key": encoded(key), "start_revision": str(start_revision)}}
    return Call(f"watch {key}", "/v3/watch", body, Effect.NONE)


def sign_in(name: str, password: str) -> Call:
    body = {"name": name, "password": password}
    return Call(f"sign in as {name}", "/v3/auth/authenticate", body, Effect.NONE)


STATUS = Call("ask for its status", "/v3/maintenance/status", {}, Effect.NONE)


def _put(put: Put) -> Json:
    return {"key": encoded(put.key), "value": encoded(put.value), "lease": str(put.lease)}


class OddReplyError(Exception):
    """A reply with a good status that is not what etcd sends."""


def parsed(body: bytes) -> Json:
    """A reply of status 200. Raises OddReplyError."""
    try:
        reply = json.loads(body)
        if isinstance(reply, dict) and set(reply) == {"result"}:  # Of a stream: a lease's keep-alive is one.
            reply = reply["result"]
        header_of(reply)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OddReplyError(_short(body)) from error
    found: Json = reply
    return found


def header_of(reply: Json) -> Header:
    """The header that every answer has. Raises KeyError without a cluster's id."""
    header = reply["header"]
    return Header(
        int(header["cluster_id"]),
        int(header.get("member_id", 0)),
        int(header.get("revision", 0)),
        int(header.get("raft_term", 0)),
    )


def key_value(found: Json, prefix: str) -> KeyValue:
    return KeyValue(
        b64decode(found["key"]).decode().removeprefix(prefix),
        b64decode(found.get("value", "")),
        int(found["create_revision"]),
        int(found["mod_revision"]),
        int(found["version"]),
        int(found.get("lease", 0)),
    )


def key_values(reply: Json, prefix: str) -> KeyValues:
    items = tuple(key_value(each, prefix) for each in reply.get("kvs", ()))
    return KeyValues(items, header_of(reply).revision)


def swapped(reply: Json, prefix: str) -> Swapped | NotSwapped:
    """The result of a swap. Raises KeyError where the reply has not the one response that a comparison without success brings."""
    revision = header_of(reply).revision
    if reply.get("succeeded", False):
        return Swapped(revision)
    found = key_values({**reply["responses"][0]["response_range"], "header": reply["header"]}, prefix).items
    return NotSwapped(found[0] if found else None, revision)


def lease_of(reply: Json) -> Lease:
    """A lease; a `ttl` of 0 is that of one that is gone."""
    return Lease(int(reply["ID"]), int(reply.get("TTL", 0)))


def status_of(reply: Json, endpoint: str, latency_ms: float) -> Status:
    header, errors = header_of(reply), tuple(str(each).strip() for each in reply.get("errors", ()))
    return Status(
        endpoint=endpoint,
        version=str(reply["version"]),
        cluster_id=header.cluster_id,
        member_id=header.member_id,
        leader=int(reply.get("leader", 0)),
        raft_term=int(reply.get("raftTerm", 0)),
        raft_index=int(reply.get("raftIndex", 0)),
        revision=header.revision,
        db_size=int(reply.get("dbSize", 0)),
        db_size_in_use=int(reply.get("dbSizeInUse", 0)),
        alarms=tuple(sorted({each.rpartition("alarm:")[2] for each in errors if "alarm:" in each})),
        errors=errors,
        latency_ms=latency_ms,
    )


@frozen
class WatchReply:
    """A message of a watch. `ended`: why it is the last one; "": it is not."""

    created: bool
    events: tuple[Event, ...]
    ended: str


def watch_reply(line: bytes, prefix: str) -> WatchReply:
    """A line of a watch's stream. Raises OddReplyError."""
    try:
        message = json.loads(line)
        if "result" not in message:
            return WatchReply(False, (), str(message["error"].get("message", message["error"])))
        reply = message["result"]
        events = tuple(_changed(each, prefix) for each in reply.get("events", ()))
        ended = ""
        if reply.get("canceled"):
            compacted = int(reply.get("compact_revision", 0))
            ended = (
                f"revisions below {compacted} are compacted" if compacted else reply.get("cancel_reason", "canceled")
            )
        return WatchReply(bool(reply.get("created")), events, ended)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OddReplyError(_short(line)) from error


def _changed(event: Json, prefix: str) -> Changed:
    found = event["kv"]
    key = b64decode(found["key"]).decode().removeprefix(prefix)
    if event.get("type") == "DELETE":
        return Changed(key, None, int(found["mod_revision"]))
    return Changed(key, key_value(found, prefix), int(found["mod_revision"]))


@frozen(kw_only=True)
class Failure:
    """All that is known of a request that failed. `certain`: it was not carried out, and will not be."""

    cause: str
    what: str
    fix: str = ""
    certain: bool = False
    refused: bool = False
    bad_token: bool = False

    def error(self, call: Call, endpoint: str) -> EtcdError:
        """The error that a caller gets."""
        what = f"cannot {call.what}: {self.what}"
        if self.cause == LEASE:
            return LeaseNotFound(what, cause=self.cause, fix=self.fix, endpoint=endpoint)
        if self.refused:
            return Refused(what, cause=self.cause, fix=self.fix, endpoint=endpoint)
        if self.certain or call.effect is Effect.NONE:
            return Unavailable(what, cause=self.cause, fix=self.fix, endpoint=endpoint)
        return Unknown(f"{what}; it may have happened", cause=self.cause, fix=self.fix, endpoint=endpoint)


GATEWAY_OFF = Failure(
    cause="gateway off",
    what="nothing answers at the paths of etcd's API v3 (HTTP 404)",
    fix="start etcd with its gateway (--enable-grpc-gateway, or enable-grpc-gateway: true in a configuration file, where it is "
    "false by default in 3.4), or name the port for clients in etcdEndpoints",
    certain=True,
    refused=True,
)
NAMED_CERTIFICATE = Failure(
    cause="certificate with a CommonName",
    what="etcd's gateway takes no client certificate with a CommonName while sign-in is on",
    fix="set etcdUsername and etcdPasswordFile, with a certificate that has no CommonName in etcdCertFile, or none at all where "
    "etcd demands none",
    certain=True,
    refused=True,
)
NOT_SIGNED_IN = Failure(
    cause="sign-in needed",
    what="etcd demands sign-in",
    fix="set etcdUsername and etcdPasswordFile",
    certain=True,
    refused=True,
    bad_token=True,
)
BAD_PASSWORD = Failure(
    cause="bad password",
    what="etcd knows no such user with this password",
    fix="compare etcdUsername and the content of etcdPasswordFile with `etcdctl user list`",
    certain=True,
    refused=True,
)
SIGN_IN_OFF = Failure(cause="sign-in off", what="sign-in is not enabled in etcd", certain=True)
NO_PERMISSION = Failure(
    cause="no permission",
    what="the user has no permission for this key",
    fix="grant its role readwrite on the prefix: etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX",
    certain=True,
    refused=True,
)
BAD_TOKEN = Failure(cause="token expired", what="etcd does not know the token any more", certain=True, bad_token=True)
LEASE = "lease not found"
NO_SPACE = Failure(
    # Not certain: a member that finds its quota exceeded as it applies a write has written it, and returns this error
    # (quotaApplierV3 in server/etcdserver/apply/quota.go).
    cause="no space",
    what="etcd's database has reached its quota (alarm NOSPACE)",
    fix="compact and defragment etcd, then `etcdctl alarm disarm`; or raise --quota-backend-bytes",
)
NO_LEADER = Failure(
    cause="no leader",
    what="etcd has no leader, or lost it meanwhile",
    fix="see which members of etcd run: more than half of them have to",
)
OWN_SERVER = Failure(
    cause="gateway cut from its server",
    what="etcd's gateway cannot reach etcd behind it",
    fix="where this stays: etcd demands client certificates, and shows its gateway a server certificate without the usage "
    "clientAuth; issue one with both, serverAuth and clientAuth",
)
OWN_SERVER_REFUSED = Failure(
    cause="gateway cut from its server",
    what="etcd refuses its own gateway's certificate",
    fix="issue etcd a server certificate with both usages, serverAuth and clientAuth",
    certain=True,
    refused=True,
)
TLS_DEMANDED = Failure(
    cause="TLS demanded",
    what="etcd takes TLS connections only",
    fix="write https:// in etcdEndpoints",
    certain=True,
    refused=True,
)
# Whole messages where they prove something: a proxy has words of its own, and some of them are like these.
_BY_TEXT = (
    ("CommonName of client sending a request against gateway", NAMED_CERTIFICATE),
    ("etcdserver: user name is empty", NOT_SIGNED_IN),
    ("etcdserver: invalid auth token", BAD_TOKEN),
    ("etcdserver: revision of auth store is old", BAD_TOKEN),
    ("etcdserver: authentication failed, invalid user ID or password", BAD_PASSWORD),
    ("etcdserver: authentication is not enabled", SIGN_IN_OFF),
    ("etcdserver: permission denied", NO_PERMISSION),
    (
        "etcdserver: requested lease not found",
        Failure(cause=LEASE, what="the lease has expired or was revoked", certain=True),
    ),
    (
        "etcdserver: request is too large",
        Failure(
            cause="request too large",
            what="the value is larger than etcd takes",
            fix="raise etcd's --max-request-bytes",
            certain=True,
            refused=True,
        ),
    ),
    (
        "etcdserver: too many requests",
        Failure(cause="busy", what="etcd has too many requests to carry out", certain=True),
    ),
    ("database space exceeded", NO_SPACE),
    ("no leader", NO_LEADER),
    ("leader changed", NO_LEADER),
    ("previous leader failure", NO_LEADER),
    ("tls: bad certificate", OWN_SERVER_REFUSED),
    ("tls: certificate required", OWN_SERVER_REFUSED),
    ("broken pipe", OWN_SERVER),
    ("closed network connection", OWN_SERVER),
    ("connection closed", OWN_SERVER),
    ("error reading server preface", OWN_SERVER),
    ("transport is closing", OWN_SERVER),
    ("HTTP request to an HTTPS server", TLS_DEMANDED),
    (
        "corrupt",
        Failure(
            cause="corrupt",
            what="etcd's members disagree about their data (alarm CORRUPT)",
            fix="see https://etcd.io/docs/latest/op-guide/data_corruption/",
        ),
    ),
)
_NEVER_CARRIED_OUT = (401, 403, 405, 407)  # A proxy's words, where they are not etcd's.


def failure_of(status: int, body: bytes) -> Failure:
    """The failure that a reply with another status than 200 proves."""
    text = _message(body)
    for part, failure in _BY_TEXT:
        if part in text:
            return failure
    if status == 404:
        return GATEWAY_OFF
    if status in _NEVER_CARRIED_OUT:
        what = f"HTTP {status}: {text}"
        return Failure(cause="refused by a proxy", what=what, fix="see who answers there", certain=True, refused=True)
    if status == 400 and text.startswith("etcdserver: "):  # gRPC's InvalidArgument, before anything is done.
        return Failure(
            cause="bad request", what=text, fix="report it: twinlog asked wrongly", certain=True, refused=True
        )
    return Failure(cause="failing", what=f"HTTP {status}: {text}")


def odd(body: bytes) -> Failure:
    """A reply of status 200 that etcd does not send; an expired token may have brought it."""
    return Failure(cause="odd reply", what=f"the reply is not etcd's: {_short(body)}", fix="see who answers there")


def _message(body: bytes) -> str:
    """The message of an error: of a stream's, too, which has it one level down."""
    try:
        reply = json.loads(body)
        inner = reply.get("error")
        message = inner["message"] if isinstance(inner, dict) else reply.get("message", inner)
    except (ValueError, TypeError, KeyError, AttributeError):
        message = None
    return message if isinstance(message, str) else _short(body)


def _short(body: bytes) -> str:
    return repr(body[:200].decode(errors="replace").strip()) if body else "nothing"
