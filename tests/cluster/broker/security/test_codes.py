"""Every request that is served is free, asks for resources, or wants an administrator: a new one has to be sorted."""

from tests.cluster.broker.helpers import make_broker
from twinlog.cluster.broker.processors.send import SEND_CODES
from twinlog.cluster.broker.security.permission import ADMIN_CODES, NEEDS

# A valid signature is enough, as in 4.9.7. Among them are some that change something there, too: 37, 41, 42, 222, 306, 314, 316,
# 320, 323, 324, 325, 329.
OPEN = {14, 21, 26, 28, 29, 30, 31, 32, 33, 37, 41, 42, 43, 45, 46, 52}
OPEN |= {201, 202, 203, 204, 208, 222, 223, 300, 303, 305}
OPEN |= {306, 307, 308, 309, 314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329, 351, 352, 907, 1007}
OPEN |= {1005, 1006}  # Who is in sync: less than 20_001 tells.
OPEN |= {20_001}  # Ours: how a member is. It has no secret.
OF_NAME_SERVERS = {20_008}  # No broker serves it at its ports.


def test_every_code_is_of_one_kind(tmp_path):
    broker = make_broker(tmp_path)
    served = {int(code) for code in {*broker.main_port, *broker.fast_port, *SEND_CODES}}
    admin, named = {int(code) for code in ADMIN_CODES}, {int(code) for code in NEEDS}
    assert OPEN & admin == OPEN & named == admin & named == set()
    assert served | OF_NAME_SERVERS == OPEN | admin | named


def test_what_changes_topics_and_groups_needs_an_administrator_by_every_name():
    assert {17, 18, 25, 200, 207, 215, 225} <= ADMIN_CODES
