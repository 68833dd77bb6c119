"""The image: small, without rights, and content with a root file system that it cannot write to."""

import pytest

OWN_BYTES_MAX = 140_000_000  # What it adds to its base.
ALL_BYTES_MAX = 300_000_000
NO_RIGHTS = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "remove": True}


def in_image(daemon, image: str, script: str, **options) -> str:
    return daemon.containers.run(image, ["-c", script], entrypoint="sh", **{**NO_RIGHTS, **options}).decode()


def test_it_is_small(daemon, image, base):
    size, below = (daemon.images.get(name).attrs["Size"] for name in (image, base))
    print(f"{image}: {size / 1e6:.0f} MB, {(size - below) / 1e6:.0f} MB of it above {base}")
    assert 10_000_000 < size - below < OWN_BYTES_MAX
    assert size < ALL_BYTES_MAX


def test_it_runs_as_nobody_in_particular(daemon, image):
    assert in_image(daemon, image, "id -u; id -g").split() == ["10911", "10911"]
    config = daemon.images.get(image).attrs["Config"]
    assert (config["User"], config["Entrypoint"]) == ("twinlog", ["twinlog"])


def test_nothing_in_it_gives_rights_to_who_runs_it(daemon, image):
    found = in_image(
        daemon, image, "find / -xdev -type f -perm /6000", user="root", cap_drop=[], cap_add=["DAC_READ_SEARCH"]
    )
    assert found == ""


def test_nothing_of_its_program_can_be_changed_by_who_runs_it(daemon, image):
    assert in_image(daemon, image, "find /opt /usr -xdev -writable ! -type l", read_only=False) == ""


@pytest.mark.parametrize("command", ["--version", "broker -p", "log --help"])
def test_commands_run_without_rights_and_on_a_read_only_root(daemon, image, command):
    assert daemon.containers.run(image, command.split(), network_mode="none", **NO_RIGHTS)


def test_a_broker_keeps_its_data_where_its_volume_is(daemon, image):
    """Without any option, too, in the one place that is writable."""
    script = "timeout --signal=TERM 3 twinlog broker >/dev/null 2>&1; cd /var/lib/twinlog/store && ls lock"
    assert in_image(daemon, image, script, network_mode="none") == "lock\n"


def test_the_probe_tells_whom_it_did_not_reach(daemon, image):
    said = in_image(daemon, image, "twinlog-probe 1 2>&1; echo status $?", network_mode="none")
    assert said == "port 1: [Errno 111] Connection refused\nstatus 1\n"
