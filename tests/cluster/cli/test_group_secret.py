"""`twinlog group secret`: a file is made once, rotated in three steps, and shows no secret."""

import json

import pytest
from click.testing import CliRunner

from twinlog.cluster.cli.main import cli
from twinlog.cluster.config.group_secret import read_secrets, write_secrets


@pytest.fixture
def file(tmp_path):
    return tmp_path / "group-secret"


def secret(*words, status=0):
    result = CliRunner().invoke(cli, ["group", "secret", *map(str, words)])
    assert result.exit_code == status, result.output
    return result.output


def test_a_file_is_made_once_and_for_its_owner(file):
    assert "haSecretFile" in secret("new", file)
    (only,) = read_secrets(file)
    assert file.stat().st_mode & 0o777 == 0o600
    secret("new", file, status=4)
    assert "nothing was changed" in secret("new", file, "--if-missing")
    assert read_secrets(file) == (only,)


def test_a_rotation_is_three_steps_and_each_says_the_next(file):
    secret("new", file)
    (old,) = read_secrets(file)
    said = secret("add", file)
    assert read_secrets(file)[0] == old
    new = read_secrets(file)[1]
    assert f"twinlog group secret use {file} {new.id}" in said
    for _ in range(2):  # With its id it may be said again.
        said = secret("use", file, new.id)
        assert read_secrets(file) == (new, old)
    assert f"twinlog group secret drop {file}" in said
    secret("drop", file)
    assert read_secrets(file) == (new,)
    assert "nothing was changed" in secret("drop", file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_whoever_has_the_file_of_one_step_and_of_the_next_accept_each_other(file):
    """A copy takes its time."""
    secret("new", file)
    before = read_secrets(file)
    for step in ("add", "use", "drop"):
        secret(step, file)
        after = read_secrets(file)
        assert before[0] in after
        assert after[0] in before
        before = after


def test_without_an_id_the_last_one_is_used(file):
    secret("new", file)
    secret("add", file)
    old, new = read_secrets(file)
    secret("use", file)
    assert read_secrets(file) == (new, old)


def test_what_makes_no_sense_is_refused(file):
    secret("new", file)
    secret("use", file, status=4)
    secret("use", file, "00000000", status=2)
    secret("add", file)
    secret("add", file)
    before = read_secrets(file)
    secret("add", file, status=4)
    assert read_secrets(file) == before


@pytest.mark.parametrize("verb", ["show", "add", "use", "drop"])
def test_a_file_that_cannot_be_used_is_refused(file, verb):
    secret(verb, file, status=2)
    file.write_text("oh\n")
    file.chmod(0o600)
    secret(verb, file, status=2)
    assert file.read_text() == "oh\n"


def test_ids_are_shown_and_secrets_are_not(file):
    secret("new", file)
    secret("add", file)
    first, second = read_secrets(file)
    shown = secret("show", file)
    assert [word in shown for word in (first.id, second.id, "signs, accepted")] == [True] * 3
    document = json.loads(secret("show", file, "-o", "json"))
    assert (document["signs"], document["accepted"]) == (first.id, [first.id, second.id])
    for line in file.read_text().splitlines()[2:]:
        assert line.split()[1] not in shown + json.dumps(document)
    write_secrets(file, (first,))
    assert json.loads(secret("show", file, "-o", "json"))["next"] == ""


def test_the_group_says_which_group_it_is_about():
    assert "brokerName" in secret("--help")
