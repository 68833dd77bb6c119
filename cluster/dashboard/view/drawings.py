"""The cluster as a picture: each group's master above, a trunk down, a branch to every slave. Inline SVG, 360 units wide.

[ master ]
     |
[ slave ]-+-[ slave ]
"""

from attrs import frozen

from twinlog.cluster.dashboard.model.snapshot import FOLLOWING, ClusterSnapshot, GroupSnapshot, MemberSnapshot
from twinlog.cluster.dashboard.model.verdict import is_behind
from twinlog.cluster.dashboard.view.html import Markup, join, tag
from twinlog.cluster.text import count, size
from twinlog.store.util.text import counted

WIDTH, BOX, HEIGHT, TOP, STEP = 360, 172, 70, 108, 106
MIDDLE = WIDTH // 2


def picture(group: GroupSnapshot) -> Markup:
    """Picture of one group; its text alternative is one sentence."""
    master = group.masters[0] if group.masters else next((m for m in group.members if m.member.role == "master"), None)
    others = [each for each in group.members if each is not master]
    rows = (len(others) + 1) // 2
    height = (TOP + (rows - 1) * STEP + HEIGHT + 2) if others else HEIGHT + 2
    parts: list[Markup] = []
    for number, each in enumerate(others):
        x, y = _place(number, len(others))
        parts += [_branch(number, len(others), each, has_master=bool(group.masters)), _box(each, x, y)]
    head = _box(master, (WIDTH - BOX) // 2, 1) if master else _nobody()
    return tag(
        "svg",
        join(parts, head),
        class_="picture",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=_sentence(group, master, others),
    )


def _place(number: int, total: int) -> tuple[int, int]:
    row, column = divmod(number, 2)
    alone = number == total - 1 and not column
    x = (WIDTH - BOX) // 2 if alone else (1 if not column else WIDTH - BOX - 1)
    return x, TOP + row * STEP


def _branch(number: int, total: int, each: MemberSnapshot, *, has_master: bool) -> Markup:
    x, y = _place(number, total)
    if total == 1 or x == (WIDTH - BOX) // 2:
        path, cross = f"M{MIDDLE} {HEIGHT}V{y}", (MIDDLE, y - 18)
    else:
        edge, bend = (x + BOX // 2, y - 18)
        path, cross = f"M{MIDDLE} {HEIGHT}V{bend}H{edge}V{y}", (edge, bend)
    follows = has_master and each.member.state in FOLLOWING
    kind = "flow late" if follows and is_behind(each) else "flow" if follows else "cut"
    line = tag("path", d=path, class_=f"edge {kind}")
    if follows:
        return line
    mark = f"M{cross[0] - 5} {cross[1] - 5}l10 10m0-10l-10 10"
    return join(line, tag("path", d=mark, class_="edge-cross"))


def _box(each: MemberSnapshot, x: int, y: int) -> Markup:
    member = each.member
    late = member.state in FOLLOWING and is_behind(each)
    mark = "warn" if late else each.mark
    role = f"{member.role}{f' · epoch {member.epoch}' if member.epoch is not None else ''}"
    return tag(
        "g",
        tag("rect", x=x, y=y, width=BOX, height=HEIGHT, rx=8, class_=f"node {mark} {member.role}"),
        tag("text", _short(member.name, 18), x=x + 12, y=y + 22, class_="node-name"),
        tag("text", role, x=x + 12, y=y + 39, class_="node-role"),
        tag("use", href=f"#mark-{mark}", x=x + 12, y=y + 47.5, width=12, height=12, class_=f"mark {mark}"),
        tag("text", _short(member.state, 14), x=x + 29, y=y + 58, class_="node-state"),
        tag("text", _right(each), x=x + BOX - 10, y=y + 58, class_="node-lag"),
    )


def _right(each: MemberSnapshot) -> str:
    if each.member.role == "master" or each.lag_bytes is None:
        return ""
    return f"{'≤ ' if each.is_last_word else ''}{size(each.lag_bytes)}" if each.lag_bytes else "level"


def _nobody() -> Markup:
    x = (WIDTH - BOX) // 2
    return tag(
        "g",
        tag("rect", x=x, y=1, width=BOX, height=HEIGHT, rx=8, class_="node bad nobody"),
        tag("text", "no master", x=MIDDLE, y=40, class_="node-name middle"),
    )


def _short(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def _sentence(group: GroupSnapshot, master: MemberSnapshot | None, others: list[MemberSnapshot]) -> str:
    head = f"{master.member.name} is {master.member.role}, {master.member.state}" if master else "nobody is master"
    rest = ", ".join(f"{each.member.name} {each.member.state}" for each in others)
    return f"Group {group.name}: {head}; {counted(len(others), 'other member', 'other members')}: {rest or 'none'}"


TAIL_BYTES_MIN, TAIL_BYTES_MIN_PARTED = 64 << 10, 4 << 10
TAIL_PER_SPREAD = 2.5


@frozen
class Scale:
    """Range of bytes between left and right."""

    start: int
    end: int

    def percent(self, offset: int) -> float:
        """Position of an offset, 0 to 100."""
        width = max(1, self.end - self.start)
        return round(100 * min(1.0, max(0.0, (offset - self.start) / width)), 2)


def scales(group: GroupSnapshot) -> tuple[Scale, Scale] | None:
    """Scales of the whole logs, and of their tails; None while no member reports its log."""
    members = [each.member for each in group.members if each.member.written_offset is not None]
    if not members:
        return None
    end = max(each.written_offset or 0 for each in members)
    start = min(each.min_offset or 0 for each in members)
    points = [p for m in members for p in (m.written_offset, m.flushed_offset, m.confirmed_offset) if p is not None]
    points += [each.last_offset for each in group.members if each.last_offset is not None]
    points += [part.start for each in group.members for part in each.diverged if not part.is_cut]
    is_diverged = any(not part.is_cut for each in group.members for part in each.diverged)
    least = TAIL_BYTES_MIN_PARTED if is_diverged else TAIL_BYTES_MIN
    tail = max(least, round((end - min(points)) * TAIL_PER_SPREAD))
    return Scale(start, end), Scale(max(start, end - tail), end)


def offset_bars(group: GroupSnapshot) -> Markup:
    """A row for each member of a group."""
    found = scales(group)
    if found is None:
        return tag("p", "No member reports the end of its log.", class_="quiet")
    whole, tail = found
    rows = [_row(each, whole, tail) for each in group.members]
    ends = tag(
        "p",
        tag("span", f"from byte {count(tail.start)}"),
        tag("span", f"the newest {size(tail.end - tail.start)} of {size(whole.end - whole.start)}"),
        tag("span", f"to {count(tail.end)}"),
        class_="ruler",
    )
    return tag("div", rows, ends, class_="bars")


def _row(each: MemberSnapshot, whole: Scale, tail: Scale) -> Markup:
    member = each.member
    label = tag("span", member.name, class_="bar-name")
    if member.written_offset is None:
        return tag("div", label, _last_word(each, tail), class_="bar-row")
    bars = tag("span", _overview(each, whole, tail), _detail(each, tail), class_="bar-both")
    return tag("div", label, bars, tag("span", count(member.written_offset), class_="bar-end"), class_="bar-row")


def _last_word(each: MemberSnapshot, tail: Scale) -> Markup:
    """Last known log end of a silent member."""
    if each.last_offset is None:
        return tag("span", "its log is not known", class_="quiet bar-none")
    parts = (
        tag("rect", x=0, y=0, width="100%", height=18, rx=2, class_="track"),
        tag("rect", x=0, y=0, width=f"{tail.percent(each.last_offset)}%", height=18, class_="silent"),
    )
    words = f"{each.member.name} is silent; by its last word its log ended at {count(each.last_offset)}"
    bar = tag("svg", parts, class_="bar detail", width="100%", height=18, role="img", aria_label=words)
    end = tag("span", count(each.last_offset), tag("small", "its last word"), class_="bar-end quiet")
    return join(tag("span", bar, class_="bar-both"), end)


def _overview(each: MemberSnapshot, whole: Scale, tail: Scale) -> Markup:
    member = each.member
    first, last = whole.percent(member.min_offset or 0), whole.percent(member.written_offset or 0)
    window = whole.percent(tail.start)
    parts = [
        tag("rect", x=0, y=0, width="100%", height=5, class_="track"),
        tag("rect", x=f"{first}%", y=0, width=f"{max(0.4, last - first):.2f}%", height=5, class_="written"),
        tag("rect", x=f"{window}%", y=0, width=f"{max(0.4, 100 - window):.2f}%", height=5, class_="window"),
    ]
    parts += [
        tag("rect", x=f"{whole.percent(p.start)}%", y=0, width="0.6%", height=5, class_="kept")
        for p in each.diverged
        if p.is_cut
    ]
    return tag("svg", parts, class_="bar overview", width="100%", height=5, aria_hidden="true")


def _detail(each: MemberSnapshot, tail: Scale) -> Markup:
    member = each.member
    nested = (
        ("written", 0, 18, member.written_offset),
        ("flushed", 3, 12, member.flushed_offset),
        ("confirmed", 6, 6, member.confirmed_offset),
    )
    begin = tail.percent(member.min_offset or 0)
    parts = [tag("rect", x=0, y=0, width="100%", height=18, rx=2, class_="track")]
    for name, y, height, offset in nested:
        if offset is not None and (width := tail.percent(offset) - begin) > 0:
            parts.append(tag("rect", x=f"{begin}%", y=y, width=f"{width:.2f}%", height=height, class_=name))
    for part in each.diverged:
        if not part.is_cut:
            left, right = tail.percent(part.start), tail.percent(max(part.end, part.start))
            parts.append(
                tag("rect", x=f"{left}%", y=0, width=f"{max(1.0, right - left):.2f}%", height=18, class_="parted")
            )
    return tag("svg", parts, class_="bar detail", width="100%", height=18, role="img", aria_label=described(each, tail))


def described(each: MemberSnapshot, tail: Scale) -> str:
    """The bar in a sentence."""
    member = each.member
    words = [
        f"{member.name} holds bytes {count(member.min_offset)} to {count(member.written_offset)}",
        f"flushed to {count(member.flushed_offset)}",
        f"confirmed to {count(member.confirmed_offset)}",
    ]
    words += [f"differs from its master from {count(p.start)} on" for p in each.diverged if not p.is_cut]
    words += [f"{size(p.end - p.start)} cut at {count(p.start)} are kept" for p in each.diverged if p.is_cut]
    return ", ".join(words)


def legend(snapshot: ClusterSnapshot) -> Markup:
    """Legend of the bars; shapes for problems only when there are some."""
    parts = [part for each in snapshot.members for part in each.diverged]
    shown = {"parted": any(not part.is_cut for part in parts), "kept": any(part.is_cut for part in parts)}
    shown["silent"] = any(each.last_offset is not None for each in snapshot.members)
    kinds = (
        ("confirmed", 4, "confirmed: on as many members as promised"),
        ("flushed", 8, "flushed: on its disk"),
        ("written", 12, "written: in its log"),
        ("parted", 12, "not its master's bytes"),
        ("kept", 12, "cut, and kept aside"),
        ("silent", 12, "by its last word"),
    )
    items = []
    for name, height, text in kinds:
        if shown.get(name, True):
            shape = tag("rect", width=18, height=height, y=(12 - height) / 2, class_=name)
            items.append(tag("li", tag("svg", shape, width=18, height=12, aria_hidden="true"), text))
    return tag("ul", items, class_="legend")
