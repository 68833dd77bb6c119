"""The cluster as a picture: each group's master above, a trunk down, a branch to every slave. Inline SVG, 360 units wide.

[ master ]
     |
[ slave ]-+-[ slave ]
"""

from twinlog.cluster.dashboard.model.snapshot import FOLLOWING, GroupLook, MemberLook
from twinlog.cluster.dashboard.model.text import several, size
from twinlog.cluster.dashboard.model.verdict_rules import is_behind
from twinlog.cluster.dashboard.view.html import Markup, join, tag

WIDTH, BOX, HEIGHT, TOP, STEP = 360, 172, 70, 108, 106
MIDDLE = WIDTH // 2


def picture(group: GroupLook) -> Markup:
    """One group. Read out as one sentence."""
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


def _branch(number: int, total: int, each: MemberLook, *, has_master: bool) -> Markup:
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


def _box(each: MemberLook, x: int, y: int) -> Markup:
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


def _right(each: MemberLook) -> str:
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


def _sentence(group: GroupLook, master: MemberLook | None, others: list[MemberLook]) -> str:
    head = f"{master.member.name} is {master.member.role}, {master.member.state}" if master else "nobody is master"
    rest = ", ".join(f"{each.member.name} {each.member.state}" for each in others)
    return f"Group {group.name}: {head}; {several(len(others), 'other member', 'other members')}: {rest or 'none'}"
