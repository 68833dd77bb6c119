"""Configuration of running brokers: show, compare and change it.

A broker accepts new values for some options only, never for a path, a host or a command; its answer says which and why.
"""

from collections.abc import Mapping
from functools import partial

from attrs import evolve, frozen

from twinlog.cluster.admin.errors import carry_out
from twinlog.cluster.admin.options import all_options, changeable, default_of
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.gather import masters, member_address


@frozen(kw_only=True)
class OptionValue:
    """One option of a running broker. `source`: default, or set (by its file, its command line, or while it ran)."""

    key: str
    value: str
    default: str | None
    source: str | None  # None: not an option of twinlog, so its default is not known.
    meaning: str | None


@frozen(kw_only=True)
class ConfigReport:
    """The options of one running broker."""

    member: str
    address: str
    options: tuple[OptionValue, ...]


@frozen(kw_only=True)
class OptionDifference:
    """One option that differs between the sides; null: not set."""

    key: str
    left: str | None
    right: str | None


@frozen(kw_only=True)
class ConfigDiff:
    """Two configurations, and where they differ."""

    left: str
    right: str
    differences: tuple[OptionDifference, ...]


@frozen(kw_only=True)
class OptionChange:
    """One option of one broker before and after. `refusal`: the reason why it will be refused, as far as it is known here."""

    member: str
    address: str
    key: str
    before: str | None
    after: str
    refusal: str | None


@frozen
class ConfigChange:
    """A change of running brokers, made or (`done` false) only planned."""

    changes: tuple[OptionChange, ...]
    done: bool


# Every member has its own: they say who it is and where it lies.
OWN_OPTIONS = frozenset(
    {
        *("brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "brokerRole", "haMasterAddress"),
        *("brokerPort1", "brokerPort2", "haPort"),
        *("storePathRootDir", "storePathCommitLog", "bindAddress", "rocketmqHome", "brokerName"),
    }
)


@frozen
class ConfigAdmin:
    """The operations on configuration."""

    api: ClientApi

    async def get(self, member: str) -> ConfigReport:
        """Everything that is in force on a broker. Raises NoMemberError, and RemotingError when it does not answer."""
        name, address = await member_address(self.api, member)
        values = await self._values(address)
        return ConfigReport(
            member=name, address=address, options=tuple(_option(key, values[key]) for key in sorted(values))
        )

    async def _values(self, address: str) -> dict[str, str]:
        return values_of(await self.api.broker_config(address))

    async def diff(
        self, left: str, right: str, *, files: Mapping[str, str] | None = None, with_own: bool = False
    ) -> ConfigDiff:
        """Two sides, each a member or one of the files (name to text). What every member has of its own only `with_own`.

        What a file leaves out is at its default.
        """
        files = files or {}
        sides = [await self._side(name, files.get(name)) for name in (left, right)]
        skipped = frozenset() if with_own or files else OWN_OPTIONS
        are_files = [left in files, right in files]
        return ConfigDiff(left=left, right=right, differences=differences(sides[0], sides[1], are_files, skipped))

    async def _side(self, name: str, text: str | None) -> dict[str, str]:
        if text is not None:
            return values_of(text)
        _, address = await member_address(self.api, name)
        return await self._values(address)

    async def prepare_set(self, members: tuple[str, ...], changes: Mapping[str, str]) -> ConfigChange:
        """Plan a change on these members (none named: on every master). Raises NoMemberError, NoMasterError."""
        if members:
            at = [await member_address(self.api, member) for member in members]
        else:
            at = [(each.broker, each.address) for each in await masters(self.api)]
        values = await in_parallel(partial(self._values, address) for _, address in at)
        ours = await in_parallel(partial(self.api.member_status, address) for _, address in at)
        return ConfigChange(
            tuple(
                _change(name, address, key, values[i].get(key), after, is_ours=ours[i] is not None)
                for i, (name, address) in enumerate(at)
                for key, after in changes.items()
            ),
            done=False,
        )

    async def apply(self, change: ConfigChange) -> ConfigChange:
        """Carry it out, member by member. Raises RemotingError and PartlyDoneError: of a broker all is changed or nothing."""
        wanted: dict[tuple[str, str], dict[str, str]] = {}
        for each in change.changes:
            wanted.setdefault((each.member, each.address), {})[each.key] = each.after
        update = partial(admin_requests.update_config, self.api)
        await carry_out([(member, partial(update, address, keys)) for (member, address), keys in wanted.items()])
        return evolve(change, done=True)


def values_of(text: str) -> dict[str, str]:
    """A configuration as `key=value` lines; secrets hidden."""
    return {entry.key: shown(entry.key, entry.value) for entry in parse_properties(text)}


def differences(
    left: Mapping[str, str], right: Mapping[str, str], files: list[bool], skipped: frozenset[str]
) -> tuple[OptionDifference, ...]:
    """Differences by key. An option that a file leaves out has its default, and equals a running broker's default."""
    found = []
    for key in sorted({*left, *right} - skipped):
        values = [left.get(key), right.get(key)]
        for i in range(2):
            if files[i] and values[i] is None:
                values[i] = default_of(key)
        if values[0] != values[1]:
            found.append(OptionDifference(key=key, left=values[0], right=values[1]))
    return tuple(found)


def _option(key: str, value: str) -> OptionValue:
    known = all_options().get(key)
    default = known.default if known is not None else None
    source = None if known is None else "default" if default is not None and value == default else "set"
    return OptionValue(
        key=key, value=value, default=default, source=source, meaning=known.meaning if known is not None else None
    )


def _change(member: str, address: str, key: str, before: str | None, after: str, *, is_ours: bool) -> OptionChange:
    refusal = None
    if before is None:
        refusal = "it has no such option"
    elif is_ours and changeable(key) is None:
        refusal = "it is read at the start only"
    return OptionChange(member=member, address=address, key=key, before=before, after=after, refusal=refusal)
