"""`docs/configuration.md`, made from the declarations so that it cannot lie."""

from collections.abc import Iterable

from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.settings import INT_MAX, LONG_MAX, Setting, Value, render
from penstock.config.sources import environment_name
from penstock.config.topic_settings import TOPIC_SETTINGS

_HEAD = """# Configuration

<!-- Made by `python tools/gen_docs.py config` from src/penstock/config; change the declarations, not this file. -->

Settings keep Kafka's names, types and defaults where Kafka has the concept; what is ours begins with `penstock.`. The
one default that knowingly differs is retention: two weeks instead of one.

A broker takes its settings, from strong to weak, from `--set name=value`, from the environment (`{example}` for
`log.segment.bytes`), from a TOML file (`--config`) and from the defaults below. Settings marked *per-broker* or
*cluster-wide* can also be changed while it runs, and that beats all of these; *read-only* ones need a restart. A topic
follows the broker's synonym of a setting until it is given a value of its own.
"""


def configuration_page() -> str:
    return "\n".join(
        [
            _HEAD.format(example=environment_name("log.segment.bytes")),
            "## Topic settings\n",
            "| name | default | type | allowed | broker's synonyms | what it does |",
            "|---|---|---|---|---|---|",
            *_topic_rows(TOPIC_SETTINGS.values()),
            "\n## Broker settings\n",
            "| name | default | type | allowed | change | what it does |",
            "|---|---|---|---|---|---|",
            *_broker_rows(BROKER_SETTINGS.values()),
            "",
        ]
    )


def _topic_rows(settings: Iterable[Setting]) -> list[str]:
    return [
        _row(setting, ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms))
        for setting in settings
        if not setting.internal
    ]


def _broker_rows(settings: Iterable[Setting]) -> list[str]:
    return [_row(setting, setting.update.value) for setting in settings if not setting.internal]


def _row(setting: Setting, fifth: str) -> str:
    kind = setting.type.name.lower() + (f", {setting.unit}" if setting.unit else "")
    allowed = setting.validator.allowed if setting.validator else ""
    cells = (f"`{setting.name}`", _default(setting.default), kind, allowed, fifth, _doc(setting))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _doc(setting: Setting) -> str:
    return f"{setting.doc} **Without effect** here." if setting.without_effect else setting.doc


def _default(value: Value) -> str:
    if value is None:
        return "unset"
    if value == LONG_MAX or (value == INT_MAX and not isinstance(value, bool)):
        return "no limit"
    return f"`{render(value)}`" if render(value) else "empty"
