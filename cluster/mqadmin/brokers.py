"""clusterList and brokerStatus."""

import time
from collections.abc import Mapping
from functools import partial

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.mqadmin import text
from twinlog.cluster.mqadmin.requests import groups_in
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import BrokerAddresses

_LIST = "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}"
_MORE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"

Info = Mapping[str, str]


async def cluster_list(api: ClientApi, *, more: bool) -> str:
    """Every broker with its rates, or (-m) with its counts. One that does not answer has a row without them."""
    members = [(group, number, address) for group in await api.cluster() for number, address in group.addresses.items()]
    infos = await in_parallel(partial(_info, api, address) for _, _, address in members)
    if more:
        head = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
        rows = [_more(group, info) for (group, _, _), info in zip(members, infos, strict=True)]
        return text.lines([_MORE.format(*head), *rows])
    head_of_list = _LIST.format(
        *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)"),
        *("#PCWait(ms)", "#Hour", "#SPACE"),
    )
    now_ms = time.time() * 1000
    rows = [_base(*member, info, now_ms) for member, info in zip(members, infos, strict=True)]
    return text.lines([head_of_list, *rows])


async def _info(api: ClientApi, address: str) -> Info:
    try:
        return await api.runtime_info(address)
    except RemotingError:
        return {}


def _more(group: BrokerAddresses, info: Info) -> str:
    def count(what: str, when: str) -> int:
        return int(info.get(f"msg{what}Total{when}", 0))

    yesterday = [count(what, "TodayMorning") - count(what, "YesterdayMorning") for what in ("Put", "Get")]
    today = [count(what, "TodayNow") - count(what, "TodayMorning") for what in ("Put", "Get")]
    return _MORE.format(group.cluster, group.broker_name, *yesterday, *today)


def _base(group: BrokerAddresses, number: int, address: str, info: Info, now_ms: float) -> str:
    def load(rate: str, pool: str) -> str:
        first = float((info.get(rate) or "0").split(" ")[0])
        size, wait = (info.get(f"{pool}ThreadPoolQueue{key}", "") for key in ("Size", "HeadWaitTimeMills"))
        return f"{first:9.2f}({size},{wait}ms)"

    earliest = info.get("earliestMessageTimeStamp")
    hours = (now_ms - int(earliest)) / 3_600_000 if earliest else 0.0
    return _LIST.format(
        *(group.cluster, group.broker_name, number, address, info.get("brokerVersionDesc", "")),
        *(load("putTps", "send"), load("getTransferedTps", "pull"), info.get("pageCacheLockTimeMills", "")),
        *(f"{hours:2.2f}", f"{float(info.get('commitLogDiskRatio') or 0):.4f}"),
    )


async def broker_status(api: ClientApi, *, broker: str | None, cluster: str | None) -> str:
    """The runtime information of one broker, or of each broker of a cluster."""
    if broker:
        return text.lines(f"{key:<32}: {value}" for key, value in sorted((await api.runtime_info(broker)).items()))
    addresses = [a for group in await groups_in(api, cluster or "") for a in group.addresses.values()]
    infos = await in_parallel(partial(_info, api, address) for address in addresses)
    return text.lines(
        f"{address:<24} {key:<32}: {value}"
        for address, info in zip(addresses, infos, strict=True)
        for key, value in sorted(info.items())
    )
