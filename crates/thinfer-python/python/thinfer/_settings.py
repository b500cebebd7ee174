"""Settings as a dict, in the form `key=value` that the engine reads."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def to_settings(config: Mapping[str, Any]) -> list[str]:
    """The settings of a dict whose keys have dots, or that is nested. None is left out."""
    return [f"{key}={_toml(key, value)}" for key, value in _flat("", config)]


def _flat(before: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if not isinstance(name, str):
            raise TypeError(f"the key {name!r} is no text; docs/config.md lists all keys")
        key = f"{before}{name}"
        if isinstance(value, Mapping):
            yield from _flat(f"{key}.", value)
        elif value is not None:
            yield key, value


def _toml(key: str, value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if hasattr(value, "__fspath__"):
        return _toml(key, str(value))
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_toml(key, item) for item in value) + "]"
    raise TypeError(
        f"`{key}` is {type(value).__name__}, but must be text, a number, a truth value or a list "
        "of them"
    )
