"""One JVM with the real RocketMQ client in it, driven line by line: JSON commands on stdin, JSON answers on stdout.

It runs as a process of its own because a JVM starts once for each process, and the client's header serialization
(rocketmq.serialize.type) is a static that is read once for each JVM. java_client.py starts it and speaks to it.

A command is {"new": CLASS, "options": {..}}, answered by the number of the new object, or {"on": NUMBER,
"call": METHOD, "options": {..}}. Options are text. What happens for each message happens in Java (java/*.java); only
finished JSON crosses over to Python.
"""

import json
import os
import sys
from typing import Any, TextIO

import jpype  # type: ignore[import-untyped]


def main() -> None:
    commands, answers = _take_over_stdout()
    setup = json.loads(sys.stdin.readline())
    os.chdir(setup["directory"])  # Where mqadmin's consumerStatus leaves what clients told.
    jpype.startJVM(*setup["jvm_options"], classpath=setup["class_path"], convertStrings=False)
    answers.write("{}\n")
    handles: list[Any] = []
    for line in commands:
        answers.write(_answer(json.loads(line), handles) + "\n")
    # The client leaves threads that are no daemons; nothing of this process is needed any more.
    os._exit(0)


def _answer(command: dict[str, Any], handles: list[Any]) -> str:
    options = jpype.java.util.LinkedHashMap()
    for key, value in command["options"].items():
        options.put(key, value)
    try:
        if "new" in command:
            handles.append(jpype.JClass(f"twinlog.interop.{command['new']}")(options))
            return f'{{"result": {len(handles) - 1}}}'
        return f'{{"result": {handles[command["on"]].call(command["call"], options)}}}'
    except jpype.JException as error:
        return json.dumps({"error": str(error.toString()), "stack": str(error.stacktrace())})


def _take_over_stdout() -> tuple[TextIO, TextIO]:
    """Keep the real stdout for answers: whatever Java prints goes to stderr, which is the worker's log."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return sys.stdin, answers


if __name__ == "__main__":
    main()
