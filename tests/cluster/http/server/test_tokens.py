"""Who may change something over HTTP."""

import os

import pytest

from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.http.server.tokens import Tokens

TOKEN = "0123456789abcdef"


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "tokens"
    found.write_text(f"# of the deployment\n{TOKEN}\n")
    found.chmod(0o600)
    return found


def refusal(tokens: Tokens, authorization: str | None) -> HttpError:
    with pytest.raises(HttpError) as caught:
        tokens.check(authorization)
    return caught.value


def test_one_of_the_tokens_passes(path):
    tokens = Tokens(path)
    tokens.check(f"Bearer {TOKEN}")
    tokens.check(f"bearer  {TOKEN} ")


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"]
)
def test_anything_else_is_told_to_send_one(path, authorization):
    refused = refusal(Tokens(path), authorization)
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in f"{refused.what}{refused.why}{refused.next_step}"


def test_without_a_file_nobody_may():
    assert refusal(Tokens(None), f"Bearer {TOKEN}").status == 403


def test_a_file_that_everybody_may_read_is_no_secret(path):
    path.chmod(0o604)
    refused = refusal(Tokens(path), f"Bearer {TOKEN}")
    assert (refused.status, "chmod" in refused.why) == (403, True)
    path.chmod(0o640)
    Tokens(path).check(f"Bearer {TOKEN}")


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "short\n", f"{TOKEN}\nshort\n"])
def test_a_file_without_good_tokens_lets_nobody_in(path, text):
    path.write_text(text)
    assert refusal(Tokens(path), f"Bearer {TOKEN}").status == 403


def test_the_file_is_read_again_when_it_changes(path):
    """A token that leaked is taken back without a restart; a file that is gone lets nobody in."""
    tokens = Tokens(path)
    tokens.check(f"Bearer {TOKEN}")
    path.write_text("another-token-of-ours\n")
    os.utime(path, ns=(1, 1))
    assert refusal(tokens, f"Bearer {TOKEN}").status == 401
    tokens.check("Bearer another-token-of-ours")
    path.unlink()
    assert refusal(tokens, "Bearer another-token-of-ours").status == 403


def test_bodies_are_guarded_where_that_is_asked_for(path):
    Tokens(path).check_bodies(None)
    with pytest.raises(HttpError):
        Tokens(path, guards_bodies=True).check_bodies(None)


def test_a_pipe_is_no_file_with_tokens_and_nobody_waits_for_it(path):
    """Opening one waits until somebody writes into it."""
    path.unlink()
    os.mkfifo(path, 0o600)
    assert refusal(Tokens(path), f"Bearer {TOKEN}").status == 403
