"""Option values taken apart."""

from penstock.cli.errors import WrongUseError


def parse_pairs(option: str, pairs: list[str] | None) -> dict[str, str]:
    """`name=value` options as a mapping; the last one wins."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise WrongUseError(f"{option} {pair!r} is not a setting: write {option} name=value")
        found[name.strip()] = value
    return found
