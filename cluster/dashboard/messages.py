"""Messages on the page: a form that works without JavaScript, and what was found. Nothing is consumed by looking."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from twinlog.cluster.admin.message_view import MessageView, PeekedMessage
from twinlog.cluster.dashboard.view.html import Markup, facts, join, tag
from twinlog.cluster.text import count, day_and_clock, size

COUNT_MAX = 50
BODY_CHARACTERS_MAX = 4000


class QuestionError(Exception):
    """The form cannot be read; the message says why."""


@frozen(kw_only=True)
class MessageQuery:
    """A question for messages: the newest, those with a key, or those of a queue from an offset on."""

    topic: str = ""
    key: str = ""
    queue: int | None = None
    offset: int | None = None
    count: int = 5

    @staticmethod
    def of(query: Mapping[str, str]) -> "MessageQuery":
        """Out of the query of an address. Raises QuestionError."""
        queue, offset = _number(query, "queue"), _number(query, "offset")
        if (queue is None) != (offset is None):
            raise QuestionError("Queue and offset belong together: give both, or none for the newest messages.")
        key = query.get("key", "").strip()
        if key and queue is not None:
            raise QuestionError("A key, or a queue and an offset: one of the two.")
        wanted = _number(query, "count")
        return MessageQuery(
            topic=query.get("topic", "").strip(),
            key=key,
            queue=queue,
            offset=offset,
            count=max(1, min(COUNT_MAX, wanted if wanted is not None else 5)),
        )


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise QuestionError(f"{name.capitalize()} is a number from 0 on, not {text[:40]}.")
    return int(text)


def peek_form(question: MessageQuery, topics: Sequence[str], *, needs_token: bool = False) -> Markup:
    """The question, to be asked by GET. A token has no name in the form, so that it is never part of a URL."""

    def box(name: str, label: str, value: object, **more: object) -> Markup:
        field = tag("input", name=name, value=value, id=f"peek-{name}", autocomplete="off", **more)
        return tag("div", tag("label", label, for_=f"peek-{name}"), field)

    number = {"inputmode": "numeric", "size": 7}
    return tag(
        "form",
        box("topic", "Topic", question.topic, list="topics", required=True, size=24),
        box("key", "Key", question.key, size=16, placeholder="any"),
        box("queue", "Queue", _text(question.queue), placeholder="any", **number),
        box("offset", "Offset", _text(question.offset), placeholder="newest", **number),
        box("count", "Count", question.count, **number),
        _token_box() if needs_token else None,
        tag("button", "Show", type="submit"),
        tag("datalist", [tag("option", value=each) for each in topics], id="topics"),
        action="/#messages",
        method="get",
        class_="peek",
        id="peek",
    )


def _token_box() -> Markup:
    box = tag("input", type="password", id="peek-token", autocomplete="off", size=16, required=True)
    return tag("div", tag("label", "Token", for_="peek-token"), box, class_="needs-js")


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def found_messages(found: Sequence[PeekedMessage]) -> Markup:
    """Each message with its place, its properties, who has read it, and its body."""
    return tag("ol", [tag("li", _message(each)) for each in found], class_="messages")


def problem(words: str) -> Markup:
    """The reason why no message is shown."""
    return tag("p", words, class_="quiet", role="status")


def _message(peeked: PeekedMessage) -> Markup:
    message = peeked.message
    place = f"{message.topic} · {message.broker} · queue {message.queue_id} · offset {count(message.queue_offset)}"
    rows = [
        ("Id", tag("code", message.message_id)),
        ("Stored", f"{day_and_clock(message.stored_ms / 1000)}, sent from {message.born_host}"),
        ("Tags", message.tags),
        ("Keys", message.keys),
        *((name, value) for name, value in sorted(message.properties.items())),
        ("Read by", _readers(peeked)),
    ]
    return join(tag("h3", place), facts(rows), _body(message))


def _readers(peeked: PeekedMessage) -> str | None:
    if peeked.consumed_by is None:
        return None
    return ", ".join(f"{each.group}: {each.state}" for each in peeked.consumed_by) or "no group"


def _body(message: MessageView) -> Markup:
    text = message.body if message.body is not None else message.body_base64 or ""
    kind = "text" if message.body is not None else "base64, it is no UTF-8"
    if message.body_problem is not None:
        kind = f"base64 as stored, it cannot be decompressed: {message.body_problem}"
    cut = text[:BODY_CHARACTERS_MAX]
    more = f"; the first {count(len(cut))} characters are shown" if len(cut) < len(text) else ""
    label = f"Body, {size(message.body_size)}, {kind}{more}"
    return join(tag("p", label, class_="quiet"), tag("pre", cut, tabindex=0, aria_label=label))
