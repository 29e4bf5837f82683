"""Patterns of transactional ids agree with Python's own where both understand them, and none of them takes long."""

import random
import re

import pytest

from penstock.services.transactions.id_pattern import IdPattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("tx", ["tx"], ["t", "txx", ""]),
        ("my-app.*", ["my-app", "my-app-1"], ["a my-app", "my-ap"]),
        (r"app\.\d+", ["app.1", "app.12"], ["app1", "app."]),
        ("(a|bc)*d?", ["", "d", "abcad"], ["b", "dd"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2}b{1,}", ["aab", "aabbb"], ["aa", "ab"]),
        ("[a-c_]+[^0-9]", ["abc", "a_-"], ["a1", "d"]),
        ("^tx$|^$", ["tx", ""], ["tx\n"]),
        (".+?x", ["ax", "axx"], ["x"]),
        (r"\w\s\S\\", ["a b\\"], ["a b/"]),
        ("ä.", ["äö"], ["a"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = IdPattern(pattern)
    assert [text for text in (*matching, *others) if compiled.matches(text)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[]",
        "*a",
        "a**",
        "a*+",
        "a{2,1}",
        r"(a)\1",
        "(?=a)",
        "(?i)a",
        "\\",
        r"\Qa\E",
        "[a&&b]",
        "a" * 1001,
        "((a{100}){100}){100}",
        "((){9999}){9999}",
        "(" * 30 + ")" * 30,
    ],
)
def test_what_is_no_pattern_or_none_that_is_understood(pattern: str) -> None:
    with pytest.raises(PatternError):
        IdPattern(pattern)


def test_none_takes_long() -> None:
    """Each of these takes Python's own longer than anybody lives."""
    text = "a" * 32_000
    for pattern in ("(a+)+b", "(a|a)*b", "(a*)*b", "a*" * 30 + "b", "(.*)(.*)(.*)(.*)b"):
        assert not IdPattern(pattern).matches(text)


def test_random_patterns_match_what_python_matches() -> None:
    rng = random.Random(7)

    def part(depth: int) -> str:
        kind = rng.randrange(7 if depth else 4)
        if kind < 4:
            return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", "", "^", "$"])
        if kind == 4:
            return part(depth - 1) + part(depth - 1)
        if kind == 5:
            return f"({part(depth - 1)}|{part(depth - 1)})"
        return f"({part(depth - 1)}){rng.choice(['*', '+', '?', '{1,2}', '{2}', '*?'])}"

    for _ in range(2000):
        pattern = part(4)
        for _ in range(5):
            text = "".join(rng.choice("abc") for _ in range(rng.randrange(5)))
            expected = re.fullmatch(pattern, text) is not None
            assert IdPattern(pattern).matches(text) == expected, (pattern, text)
