"""Blocking classes beside the asynchronous ones: the same names with the same parameters and results."""

import inspect
import typing
from collections.abc import Awaitable, Callable

import attrs
import pytest

from twinlog import client
from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.client.request_reply import reply
from twinlog.cluster.client.sync import admin as sync_admin

PAIRS = [
    (client.Batch, client.SyncBatch),
    (client.Client, client.SyncClient),
    (client.Producer, client.SyncProducer),
    (client.PullConsumer, client.SyncPullConsumer),
    (client.PushConsumer, client.SyncPushConsumer),
    (client.Requester, client.SyncRequester),
    (client.TransactionProducer, client.SyncTransactionProducer),
    (Admin, sync_admin.SyncAdmin),
    *(
        (typing.get_args(each.__orig_bases__[0])[0], each)
        for name, each in vars(sync_admin).items()
        if name.startswith("Sync") and each is not sync_admin.SyncAdmin
    ),
]
IDS = [blocking.__name__ for _, blocking in PAIRS]
# Of the loop, or only for those who write the client's own parts.
LEFT_OUT = {
    "run",
    "Admin.send",  # SyncProducer sends, SyncPushConsumer and SyncPullConsumer consume.
    "Admin.consume",
    "Producer.choose",
    "PushConsumer.may_pull",
    "PushConsumer.offset_to_commit",
    "PushConsumer.on_arrival",
    "PushConsumer.on_passed",
    "PullConsumer.may_pull",
    "PullConsumer.offset_to_commit",
    "PullConsumer.on_arrival",
    "PullConsumer.on_passed",
}
THEIRS = {"client", "handler", "check", "local"}  # Of other types: blocking functions, a SyncClient.


def functions(cls):
    found = {
        name: member for name, member in vars(cls).items() if not name.startswith("_") and inspect.isfunction(member)
    }
    return {name: each for name, each in found.items() if not (each.__doc__ or "").startswith("Internal: ")}


def described(function, *, own=lambda name: True):
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [(each.name, each.kind, each.default, each.annotation) for each in parameters if own(each.name)]


def result(function):
    """Its type as text; a blocking class stands for the asynchronous one."""
    found = inspect.signature(function).return_annotation
    return (found if isinstance(found, str) else getattr(found, "__name__", str(found))).replace("Sync", "")


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=IDS)
def test_every_method_has_its_twin(theirs, ours):
    wanted = functions(theirs)
    wanted = {name for name in wanted if name not in LEFT_OUT and f"{theirs.__name__}.{name}" not in LEFT_OUT}
    assert wanted <= set(dir(ours))
    more = set(functions(ours)) - set(functions(theirs))
    assert more <= ({"reply"} if ours is client.SyncProducer else set())


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=IDS)
def test_methods_have_the_same_parameters_and_results(theirs, ours):
    for name, function in functions(ours).items():
        twin = reply if name == "reply" else functions(theirs)[name]
        assert described(function, own=lambda each: each not in THEIRS) == described(
            twin, own=lambda each: each not in THEIRS
        ), name
        assert result(twin) == result(function), name


@pytest.mark.parametrize(("theirs", "ours"), [pair for pair in PAIRS if "__init__" in vars(pair[1])])
def test_they_are_made_with_the_same_arguments(theirs, ours):
    """Defaults that a function makes cannot be compared."""
    wanted, got = described(theirs.__init__), described(ours.__init__)
    assert [each[:2] for each in wanted] == [each[:2] for each in got]
    for (name, _, default, kind), (_, _, other, other_kind) in zip(wanted, got, strict=True):
        assert default is attrs.NOTHING or default == other, name
        assert name in (*THEIRS, "instance") or kind == other_kind, name


def test_the_types_that_differ_differ_in_waiting_only():
    check, blocking_check = (
        typing.get_type_hints(each.__init__)["check"]
        for each in (client.TransactionProducer, client.SyncTransactionProducer)
    )
    assert check == Callable[[client.ReceivedMessage], client.Decision | Awaitable[client.Decision]]
    assert blocking_check == Callable[[client.ReceivedMessage], client.Decision]
