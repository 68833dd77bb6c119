"""`-o schema`: the JSON Schema of what a command prints with -o json."""

from importlib import import_module

import click
import orjson

from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.admin.errors import Failure

__all__ = ["print_schema", "schema_of"]


def print_schema(document: str) -> None:
    """Print the schema of `module:class`; `$defs` has Failure, which is printed instead when the command fails."""
    module, _, name = document.partition(":")
    schema, failure = schema_of(getattr(import_module(module), name)), schema_of(Failure)
    of_failure = {
        key: failure[key] for key in ("type", "description", "properties", "required", "additionalProperties")
    }
    schema["$defs"] |= {**failure["$defs"], Failure.__name__: of_failure}
    click.echo(orjson.dumps(schema, option=orjson.OPT_INDENT_2))
