"""The directive `format`: a table of a file format, as format_fields.py beside it has it: page and checker cannot differ."""

import format_fields
from docutils import nodes
from format_fields import FORMATS, Field
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def table(fields: tuple[Field, ...]) -> str:
    """A field per row: where it lies, what it is, and what tells that it is damaged."""
    has_places = all(field.size for field in fields)
    head = ["offset", "size", "type"] if has_places else []
    rows = [[*head, "field", "meaning", "covered by"], ["---"] * (len(head) + 3)]
    constant, variables = 0, ""
    for field in fields:
        place = [f"{constant}{variables}", str(field.size), field.type] if has_places else []
        rows.append([*place, f"`{field.name}`", field.meaning.replace("|", "&#124;"), covered_by(field)])
        if isinstance(field.size, int):
            constant += field.size
        else:
            variables += f" + {field.size}"
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def covered_by(field: Field) -> str:
    """What the page says of a field's cover."""
    cover = field.cover.value or "**nothing**"
    return f"{cover} ({field.note})" if field.note else cover


class FormatDirective(SphinxDirective):
    required_arguments = 1  # A key of FORMATS.

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(format_fields.__file__)
        return self.parse_text_to_nodes(table(FORMATS[self.arguments[0]]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("format", FormatDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
