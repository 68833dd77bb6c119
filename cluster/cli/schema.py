"""`-o schema`: the JSON Schema of what a command prints with -o json."""

from importlib import import_module

import click
import orjson

from cluster.document_schema import schema_of

__all__ = ["print_schema", "schema_of"]


def print_schema(document: str) -> None:
    """Print the schema of `module:class`."""
    module, _, name = document.partition(":")
    click.echo(orjson.dumps(schema_of(getattr(import_module(module), name)), option=orjson.OPT_INDENT_2))
