"""One described setting, as DescribeConfigs gives it to a client."""

from dataclasses import dataclass

from penstock.config.settings import SettingType, Source


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    value: str | None
    source: Source
    type: SettingType
    read_only: bool
    sensitive: bool
    synonyms: tuple[DescribedSynonym, ...]
    doc: str
