"""The file of a group secret: every fault has its sentence, none shows a key, and a bad change leaves what was in use."""

import contextlib
import os
import re
from base64 import b64encode

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from twinlog.cluster.config.group_secret import (
    KEY_BYTES,
    GroupSecret,
    GroupSecrets,
    SecretFileError,
    decode,
    encode,
    id_of,
    new_secret,
    read_secrets,
    write_secrets,
)

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
some_secrets = st.lists(keys.map(lambda key: GroupSecret(id_of(key), key)), min_size=1, max_size=3, unique=True)


def line(secret):
    return f"{secret.id} {b64encode(secret.key).decode()}\n"


def file_of(tmp_path, text, mode=0o600):
    path = tmp_path / "group-secret"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


@given(some_secrets.map(tuple))
def test_what_is_written_is_read(found):
    assert decode(encode(found)) == found


@given(some_secrets.map(tuple), st.data())
def test_a_changed_character_of_a_secret_is_found(found, data):
    """Whatever digit a person mistypes: it is no other secret that is read then."""
    raw = encode(found)
    start = raw.index(found[0].id.encode())
    at = data.draw(st.integers(start, len(raw) - 1))
    other = data.draw(st.sampled_from(sorted(set(b"0123456789abcdefXYZ+/=") - {raw[at]})))
    with contextlib.suppress(ValueError):
        assert decode(raw[:at] + bytes([other]) + raw[at + 1 :]) == found  # Bits of base64 that count for nothing.


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw):
    with contextlib.suppress(ValueError):
        assert decode(raw)


def test_the_first_signs_and_comments_do_not_count(tmp_path):
    one, two = new_secret(), new_secret()
    path = file_of(tmp_path, f"# ours\n\n  {line(one)}\r\n{line(two)}")
    assert read_secrets(path) == (one, two)
    holder = GroupSecrets.load(path)
    assert (holder.current, holder.find(two.id), holder.find("00000000")) == (one, two, None)
    assert holder.ids == (one.id, two.id)


def test_without_a_file_there_is_no_secret():
    holder = GroupSecrets.load(None)
    assert (holder.current, holder.ids, holder.find("00000000")) == (None, (), None)


def test_a_key_is_never_shown():
    secret = new_secret()
    assert "key" not in repr(secret)
    assert "key" not in repr(GroupSecrets(None, (secret,)))


one = new_secret()
FAULTS = {
    "empty": ("", "has no secret in it"),
    "only comments": ("# nothing\n", "has no secret in it"),
    "one word": (f"# x\n{one.id}\n", "damaged in line 2: there must be an id and a secret"),
    "no base64": (f"{one.id} ???\n", "damaged in line 1: its secret is no base64"),
    "not ascii": (b"\xff\xfe " + b64encode(one.key), "damaged in line 1: its secret is no base64"),
    "short": (f"{one.id} {b64encode(one.key[:16]).decode()}\n", "its secret has 16 bytes, not 32"),
    "other id": (line(GroupSecret("00000000", one.key)), "the secret is not the one of its id"),
    "too many": ("".join(line(new_secret()) for _ in range(4)), "has 4 secrets, and 3 are the most"),
    "doubled": (line(one) * 2, "has one secret twice"),
    "large": ("# x\n" * 2000, "has more than 4096 bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_file_is_named_without_its_bytes(tmp_path, fault):
    text, sentence = FAULTS[fault]
    path = file_of(tmp_path, text)
    with pytest.raises(SecretFileError, match=re.escape(sentence)) as raised:
        read_secrets(path)
    assert str(path) in str(raised.value)
    assert "Copy the file from another member" in raised.value.next_step
    assert b64encode(one.key).decode()[:8] not in raised.value.report_line()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path, mode):
    path = file_of(tmp_path, line(one), mode)
    with pytest.raises(SecretFileError, match=f"has mode {mode:04o}: others") as raised:
        read_secrets(path)
    assert raised.value.next_step.startswith(f"chmod 600 {path}")


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    with pytest.raises(SecretFileError, match="is not there") as raised:
        read_secrets(tmp_path / "none")
    assert f"twinlog group secret new {tmp_path}/none" in raised.value.next_step
    with pytest.raises(SecretFileError, match="is a directory"):
        read_secrets(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SecretFileError, match="is no file"):
        read_secrets(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SecretFileError, match="cannot be read: Permission denied"):
        read_secrets(file_of(tmp_path, line(one), 0o000))


def test_a_new_file_is_its_owners_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        write_secrets(tmp_path / "new", (one,))
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    assert read_secrets(tmp_path / "new") == (one,)
    assert os.listdir(tmp_path) == ["new"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(file_of(tmp_path, line(one)))
    write_secrets(tmp_path / "link", (two := new_secret(), one))
    assert (tmp_path / "link").is_symlink()
    assert read_secrets(tmp_path / "group-secret") == (two, one)


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(SecretFileError, match="cannot be written: No such file") as raised:
        write_secrets(tmp_path / "none" / "file", (one,))
    assert "Nothing was changed" in raised.value.next_step


async def test_a_changed_file_is_read_within_a_second(tmp_path, autojump_clock, nursery):
    two = new_secret()
    path = tmp_path / "group-secret"
    write_secrets(path, (one,))
    holder = GroupSecrets.load(path)
    nursery.start_soon(holder.run)
    write_secrets(path, (two, one))
    assert holder.ids == (one.id,)
    await trio.sleep(1.1)
    assert holder.ids == (two.id, one.id)


def test_a_changed_file_that_is_unusable_is_one_line_and_the_old_one_stays(tmp_path):
    path = tmp_path / "group-secret"
    write_secrets(path, (one,))
    holder = GroupSecrets.load(path)
    with capture_logs() as lines:
        for change in (lambda: path.write_text("oh\n"), lambda: path.chmod(0o644), path.unlink):
            change()
            holder.look()
            holder.look()
            assert holder.current == one
        assert [line["log_level"] for line in lines] == ["error"] * 3
        for part, entry in zip(("line 1", "chmod 600", "not there"), lines, strict=True):
            assert part in entry["why"]
        write_secrets(path, (two := new_secret(),))
        holder.look()
        assert holder.current == two
    assert lines[3]["event"] == "changed group secret in use"
    assert b64encode(two.key).decode() not in str(lines)
