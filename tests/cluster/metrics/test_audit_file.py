"""What an audit found reaches a broker's metrics, whatever else lies in the file."""

import pytest

from tests.cluster.broker.helpers import make_broker, opened
from twinlog.cluster.metrics import audit_file, broker_snapshot, expose
from twinlog.cluster.metrics.audit_file import DIVERGENT, LAST_RUN


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "audit.prom"
    audit_file.write(path, audit_file.text("broker-a", 'broker-a-0/"b\\', ended=1795300000.5, divergent=3))
    assert list(audit_file.samples(str(path), LAST_RUN)) == [(("broker-a", 'broker-a-0/"b\\'), 1795300000.5)]
    assert list(audit_file.samples(str(path), DIVERGENT)) == [(("broker-a", 'broker-a-0/"b\\'), 3.0)]
    assert [each.name for each in tmp_path.iterdir()] == ["audit.prom"]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"up 1\n", b'other{group="a",pair="b"} 1\n'])
def test_a_file_that_is_no_such_file_shows_nothing(tmp_path, content):
    path = tmp_path / "audit.prom"
    if content is not None:
        path.write_bytes(content)
    assert list(audit_file.samples(str(path), DIVERGENT)) == []


async def test_a_broker_shows_the_file_that_it_was_told_of(tmp_path):
    path = tmp_path / "audit.prom"
    async with opened(make_broker(tmp_path / "store", audit_metrics_file=str(path))) as client:
        body, _ = expose(broker_snapshot(client.broker), "")
        assert f"# TYPE {DIVERGENT} gauge" in body.decode(), "type and help are there before the first audit"
        audit_file.write(path, audit_file.text("broker-a", "broker-a-0/broker-a-1", ended=1.0, divergent=0))
        body, _ = expose(broker_snapshot(client.broker), "")
    assert f'{DIVERGENT}{{group="broker-a",pair="broker-a-0/broker-a-1"}} 0.0' in body.decode().splitlines()
