"""What a person is told: one sentence what, one why, one next step."""

import pytest

from twinlog.cluster.admin.errors import explain
from twinlog.cluster.admin.groups import GroupExistsError, GroupOnlineError, NoGroupError
from twinlog.cluster.admin.messages import NoMessageError
from twinlog.cluster.admin.offsets import NoQueueResetError, NothingToMoveError
from twinlog.cluster.admin.sending import NoQueueError
from twinlog.cluster.admin.topics import NoTopicError, TopicExistsError
from twinlog.cluster.cli.common.errors import FAILED, REFUSED, UNREACHABLE, USAGE
from twinlog.cluster.observe.consumption import SilentBrokersError
from twinlog.cluster.observe.gather import NoMasterError
from twinlog.cluster.remoting.errors import RemotingConnectError, RequestError, TlsFilesError

ACL = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, org.apache.rocketmq.acl.Plain.validate(A.java)"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (NoTopicError("T"), FAILED, "twinlog topic list --all"),
        (TopicExistsError("T", ("a",)), REFUSED, "twinlog topic update T"),
        (NoGroupError("G"), FAILED, "twinlog group list --all"),
        (GroupExistsError("G", ("a",)), REFUSED, "twinlog group update G"),
        (GroupOnlineError("G", ("c",), "busy"), REFUSED, "twinlog group show G"),
        (NothingToMoveError("nothing"), FAILED, "twinlog lag"),
        (NoQueueResetError("not so"), REFUSED, "reset it to a time"),
        (NoMessageError("none"), FAILED, "twinlog topic show"),
        (NoQueueError("none"), FAILED, "twinlog topic show"),
        (SilentBrokersError(("a", "b")), REFUSED, "twinlog list"),
        (NoMasterError("none"), FAILED, "twinlog list"),
        (RequestError(1, ACL), REFUSED, "TWINLOG_ACCESS_KEY"),
        (RequestError(23, "parse failed"), FAILED, "--sql"),
        (RemotingConnectError("h:1", "refused"), UNREACHABLE, "twinlog up"),
        (RemotingConnectError("h:2", "refused"), UNREACHABLE, "twinlog list"),
        (TlsFilesError("tls.client.keyPath=x: no such file"), USAGE, "tls.client.keyPath"),
        (PermissionError(13, "Permission denied", "/x/cred.yml"), USAGE, "/x/cred.yml cannot be read"),
    ],
)
def test_every_refusal_has_a_status_and_a_next_step(error, status, words):
    told = explain(error, ["h:1"])
    assert told is not None
    assert told.exit_status == status
    assert words in "\n".join(told.lines)
    assert told.lines[0][0].isupper() or told.lines[0].startswith("/")
    assert "org.apache" not in "".join(told.lines)


def test_what_access_control_said_is_told_without_javas_names():
    told = explain(RequestError(1, ACL), [])
    assert told is not None
    assert told.lines[:2] == ["You may not do that.", "No accessKey is configured."]


def test_a_bug_keeps_its_traceback():
    assert explain(KeyError("x"), []) is None
