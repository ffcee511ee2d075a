"""YAML as recipes are written in it: plain values, and no more of them than there is text."""

from typing import Any

import yaml

__all__ = ["LONGEST", "read_yaml"]

LONGEST = 1 << 20
"""Bytes of a recipe's text."""

_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))


class _Plain(yaml.SafeLoader):
    """Knows plain values alone, and no aliases: a few lines of those can stand for more values than memory holds."""

    yaml_constructors = {  # noqa: RUF012 -- the library's
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _PLAIN or tag is None
    }
    yaml_implicit_resolvers = {  # noqa: RUF012 -- the library's; without it, a date is text
        first: [(tag, pattern) for tag, pattern in known if tag in _PLAIN or tag.endswith(":merge")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted", problem_mark=mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Refuse what YAML leaves open: of a key that is given twice, the first value would be lost in silence."""
        node = super().compose_mapping_node(anchor)
        first: dict[Any, Any] = {}
        for key, _ in node.value:
            if (before := first.setdefault((key.tag, str(key.value)), key)) is not key:
                line = before.start_mark.line + 1
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is given twice (first in line {line})", problem_mark=key.start_mark
                )
        return node


def read_yaml(text: str) -> Any:
    """The value that a text stands for, of dictionaries, lists, text, numbers, booleans and None.

    Raises:
        ValueError: if it stands for none, in one line.
        RecursionError: if it is nested too deeply.
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} characters, and at most {LONGEST:,} are accepted")
    try:
        return yaml.load(text, _Plain)
    except RecursionError:
        raise
    except Exception as error:  # a value that is none, such as `!!int no`, can raise anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
