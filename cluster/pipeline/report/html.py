"""Parts that the pages of an audit share: the document round their content, and tables. Pure.

A page loads nothing, needs no script, and prints.
"""

from collections.abc import Iterable
from html import escape

from twinlog.cluster.pipeline.audit.report import AuditVerdict

_SIGNS = {
    AuditVerdict.EQUAL: ("✓", "good"),
    AuditVerdict.SAMPLES_EQUAL: ("✓", "good"),
    AuditVerdict.DIVERGENT: ("✗", "bad"),
    AuditVerdict.INCOMPLETE: ("!", "unsure"),
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--soft:#595959;--line:#c4c4c4;--log:#e4e7ea;--good:#00694e;
--bad:#a83300;--unsure:#7a5200;--proved:#00694e;--tile:#fff;--late:#d55e00}
@media (prefers-color-scheme:dark){:root{--ink:#eee;--paper:#16181a;--soft:#b0b0b0;--line:#55595e;--log:#343a40;--good:#4fd6a9;
--bad:#ff9a66;--unsure:#ffc84d;--proved:#3fbf95;--tile:#16181a;--late:#ff9a66}}
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.5rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);
background:var(--paper)}h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}
.verdict{font-size:1.15rem;font-weight:600;border-left:.4rem solid;padding:.4rem .8rem}.good{color:var(--good)}
.bad{color:var(--bad)}.unsure{color:var(--unsure)}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}th,td{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;
border-bottom:1px solid var(--line)}th{white-space:nowrap}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}.note{color:var(--soft);font-size:.88rem}
.scroll>svg{width:100%;min-width:52rem;height:auto}
.scroll>table{min-width:52rem}.short{white-space:nowrap}
svg text{fill:var(--ink);font:14px system-ui,sans-serif}svg .small{font-size:12px;fill:var(--soft)}
svg .name{font-weight:600}svg .log{fill:var(--log);stroke:var(--soft)}svg .tick{stroke:var(--line);fill:none}
svg .confirmed{stroke:var(--ink);stroke-width:2;fill:none}svg .mark{stroke:#000;stroke-width:.7}svg .ground{fill:#fff}
svg .p-new{fill:var(--proved)}svg .p-ground{fill:var(--tile)}svg .p-line{stroke:var(--proved)}
svg .p-late{stroke:var(--late);stroke-width:3}svg .p-some{stroke:var(--ink);stroke-width:1.2}svg .unproved{fill:var(--log)}
svg .end{fill:var(--ink)}
svg .limit{stroke:var(--late);stroke-dasharray:6 4}svg .line{fill:none;stroke:var(--ink);stroke-width:1.8}
.legend{list-style:none;padding:0;font-size:.9rem}.legend svg{vertical-align:middle}footer{margin-top:2rem;color:var(--soft);
font-size:.85rem}@media print{body{max-width:none;padding:0}.scroll>*{min-width:0!important}}
"""


def sign_of(verdict: AuditVerdict) -> tuple[str, str]:
    """The sign of a verdict, and the class that colours it."""
    return _SIGNS[verdict]


def document(title: str, parts: Iterable[str], made: str) -> str:
    """The whole document. `title` and `made`, the line at its end, are plain text, `parts` markup."""
    return "".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
            *parts,
            f"</main><footer>{escape(made)}</footer></body></html>\n",
        )
    )


def table(caption: str, titles: Iterable[tuple[str, str]], rows: str) -> str:
    """A table; `titles`: of each column, with its class."""
    heads = "".join(
        f'<th scope="col"{f" class={kind}" if kind else ""}>{title or "Number"}</th>' for title, kind in titles
    )
    head = f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
    return scrolled(caption, f"<table>{head}<tbody>{rows}</tbody></table>")


def scrolled(label: str, content: str) -> str:
    """Content that may be wider than the screen: it scrolls by itself, with keys, too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'
