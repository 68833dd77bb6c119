"""`twinlog group secret`: makes, shows and rotates the secret by which members of a replication group know each other."""

from pathlib import Path

import click
from attrs import field, frozen

from twinlog.cluster.cli.common.errors import REFUSED, USAGE, CliError
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.pages import Block, Page, show
from twinlog.cluster.cli.common.render import Column
from twinlog.cluster.config.group_secret import SECRETS_MAX, GroupSecret, new_secret, read_secrets, write_secrets

_COPY = "copy the file to every member (mode 0600, owned by the user it runs as); it is read within a second"

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@frozen(kw_only=True)
class SecretFile:
    """The secrets in a file, by their ids; none is shown itself."""

    path: str
    signs: str = field(metadata={"doc": "id of the secret that members sign with"})
    accepted: tuple[str, ...] = field(metadata={"doc": "ids of all secrets that members accept, in the file's order"})
    next: str = field(metadata={"doc": "the next step of introducing or rotating it"})


@click.group(
    "secret",
    cls=InOrder,
    short_help="Manage the secret of a replication group (brokerName).",
    epilog=examples(
        "twinlog group secret new group-secret",
        "twinlog group secret add group-secret     rotation: then copy it; use, copy; drop, copy",
    ),
)
def secret_group() -> None:
    """Make, show and rotate the secret by which the members of a replication group know each other.

    This is about the brokers with one brokerName, not about consumer groups. FILE is the file that haSecretFile names in
    broker.conf. All members of the group have the same: the first secret in it signs, all are accepted, at most three.

    To rotate it, without a moment in which members refuse each other: add, copy to all; use, copy to all; drop, copy to all.
    """


@secret_group.command(
    "new",
    short_help="Make the file with a new secret.",
    epilog=examples(
        "twinlog group secret new /etc/twinlog/group-secret", "twinlog group secret new group-secret --if-missing"
    ),
)
@file_argument
@click.option("--if-missing", is_flag=True, help="Leave a file that is there as it is, if it can be used.")
@document_option(SecretFile)
def new(file: Path, if_missing: bool, fmt: str) -> None:
    """Make FILE, with mode 0600 and one new secret. An existing file is never replaced."""
    if file.exists() or file.is_symlink():
        if if_missing:
            _show(file, read_secrets(file), "", fmt, nothing_changed=True)
            return
        raise CliError(
            f"There is already a file {file}.",
            "Members that use its secret would refuse those that use a new one.",
            f"To change the secret: twinlog group secret add {file}",
            exit_code=REFUSED,
        )
    advice = (
        "copy the file to every member (mode 0600, owned by the user it runs as), set haSecretFile there, and restart them one "
        "by one. Where the group runs already, set haSecret=optional, too, until twinlog check names no member without it"
    )
    _write(file, (new_secret(),), advice, fmt)


@secret_group.command(
    "show",
    short_help="Show the ids of the secrets in a file.",
    epilog=examples("twinlog group secret show group-secret", "twinlog group secret show group-secret -o json"),
)
@file_argument
@document_option(SecretFile)
def show_secrets(file: Path, fmt: str) -> None:
    """Show the ids of the secrets in FILE, and which one signs. Secrets themselves are not shown."""
    found = read_secrets(file)
    use = f"to sign with another one, once all members accept it: twinlog group secret use {file} {found[-1].id}"
    drop = f"to keep {found[0].id} only, once all members sign with it: twinlog group secret drop {file}"
    _show(file, found, "" if len(found) == 1 else f"{use}; {drop}", fmt)


@secret_group.command(
    "add",
    short_help="Add a new secret, which is accepted from then on.",
    epilog=examples("twinlog group secret add group-secret"),
)
@file_argument
@document_option(SecretFile)
def add(file: Path, fmt: str) -> None:
    """Add a new secret to FILE as its last line: members accept it, and sign with the old one still."""
    found = read_secrets(file)
    if len(found) == SECRETS_MAX:
        raise CliError(
            f"{file} has {SECRETS_MAX} secrets, which is the most.",
            next_step=f"End the rotation that was begun: twinlog group secret drop {file}",
            exit_code=REFUSED,
        )
    added = new_secret()
    advice = (
        f"{_COPY}. When twinlog check names no member without {added.id}: twinlog group secret use {file} {added.id}"
    )
    _write(file, (*found, added), advice, fmt)


@secret_group.command(
    "use",
    short_help="Sign with the secret that was added.",
    epilog=examples("twinlog group secret use group-secret", "twinlog group secret use group-secret 3f9a0c1b"),
)
@file_argument
@click.argument("id", required=False)
@document_option(SecretFile)
def use(file: Path, id: str | None, fmt: str) -> None:
    """Make the secret ID of FILE, or its last one, the first, which signs. All members must have it already."""
    found = read_secrets(file)
    if len(found) == 1 and id is None:
        raise CliError(
            f"{file} has one secret, which signs already.",
            next_step=f"Begin a rotation with: twinlog group secret add {file}",
            exit_code=REFUSED,
        )
    chosen = next((each for each in found if each.id == (id or found[-1].id)), None)
    if chosen is None:
        raise CliError(
            f"{file} has no secret {id}.", next_step=f"See: twinlog group secret show {file}", exit_code=USAGE
        )
    found = (chosen, *(each for each in found if each is not chosen))
    advice = (
        f"{_COPY}. When twinlog check says that every member signs with {chosen.id}: twinlog group secret drop {file}"
    )
    _write(file, found, advice, fmt)


@secret_group.command(
    "drop",
    short_help="Keep only the secret that signs.",
    epilog=examples("twinlog group secret drop group-secret"),
)
@file_argument
@document_option(SecretFile)
def drop(file: Path, fmt: str) -> None:
    """Keep only the first secret of FILE. All members must sign with it already: what others sign with is refused then."""
    found = read_secrets(file)
    if len(found) == 1:
        _show(file, found, "", fmt, nothing_changed=True)
    else:
        _write(file, found[:1], f"{_COPY}. The rotation is done then", fmt)


def _write(file: Path, found: tuple[GroupSecret, ...], advice: str, fmt: str) -> None:
    write_secrets(file, found)
    _show(file, found, advice, fmt)


def _show(file: Path, found: tuple[GroupSecret, ...], advice: str, fmt: str, *, nothing_changed: bool = False) -> None:
    ids = tuple(each.id for each in found)
    columns = [
        Column("ID", lambda id: id),
        Column("USE", lambda id: "signs, accepted" if id == ids[0] else "accepted"),
    ]
    notes = (f"next: {advice}",) if advice else ()
    answer = SecretFile(path=str(file), signs=ids[0], accepted=ids, next=advice)
    show(answer, fmt, lambda _: Page((Block(None, columns, ids),), notes, nothing_changed=nothing_changed))
