"""Does the record of the group name each member once, at the address that it has now?"""

from collections.abc import Mapping

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from twinlog.store.role_file import GroupRecord


def each_named_once(records: Mapping[str, GroupRecord | None], addresses: Mapping[str, str]) -> Verdict:
    """Oracle H. `records`: as each member has it after everything has healed; `addresses`: where each of them is."""
    wrong = []
    there = sorted(addresses.items())
    ids: dict[tuple[str, ...], str] = {}
    for member, record in sorted(records.items()):
        members = record.members if record is not None else ()
        named = sorted((each.name, each.address) for each in members)
        if named != there:
            wrong.append(f"{member} has a record of {_listed(named)}; there are {_listed(there)}")
        ids.setdefault(tuple(sorted(each.id for each in members)), member)
    if len(ids) > 1:
        wrong.append(f"the records of {' and '.join(ids.values())} have other ids")
    wrong += [f"{member} has two members of one id" for found, member in ids.items() if len(set(found)) < len(found)]
    if not records:
        wrong.append("no record was looked at")
    return verdict("H", wrong, f"{len(records)} records of {len(there)} members")


def _listed(named: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} at {address}" for name, address in named) or "nobody"
