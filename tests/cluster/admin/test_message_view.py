"""A message whose body cannot be decompressed: shown as it is stored, with the reason, wherever messages are shown."""

from base64 import b64decode

import pytest
from attrs import evolve

from tests.cluster.client.helpers import received_message
from twinlog.cluster.admin.message_view import MessageView, PeekedMessage, view_of
from twinlog.cluster.cli.messages import print_pretty
from twinlog.cluster.dashboard.messages import found_messages

WHY = "it is no lz4: it ends too early"


@pytest.fixture
def broken() -> MessageView:
    return view_of(evolve(received_message(1, body=b"abc"), body_problem=WHY))


def test_it_is_never_given_as_text(broken):
    """What a program would take for the message."""
    assert (broken.body, b64decode(broken.body_base64), broken.body_problem) == (None, b"abc", WHY)
    whole = view_of(received_message(1, body=b"abc"))
    assert (whole.body, whole.body_base64, whole.body_problem) == ("abc", None, None)


def test_people_are_told_why(broken, capsys):
    print_pretty(broken)
    assert f"  <3 bytes as stored, not decompressed: {WHY}> 61 62 63" in capsys.readouterr().out
    assert f"base64 as stored, it cannot be decompressed: {WHY}" in found_messages(
        [PeekedMessage(message=broken, consumed_by=None)]
    )
