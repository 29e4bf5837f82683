"""Which names a topic may have."""

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.topics.names import Collisions, check_topic_name, is_legal_topic_name


@pytest.mark.parametrize("name", ["a", "A-z.0_9", "...", "__foo", "x" * 249])
def test_legal_names(name: str) -> None:
    check_topic_name(name)
    assert is_legal_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        (
            "a/b",
            "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_illegal_names_are_refused_with_the_reason(name: str, problem: str) -> None:
    assert not is_legal_topic_name(name)
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == f"Topic name is invalid: {problem}"


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    collisions = Collisions(["a.b", "plain"])
    collisions.check("a.b")  # itself
    collisions.check("a-b")
    with pytest.raises(ApiError, match=r"Topic 'a_b' collides with existing topic: a\.b"):
        collisions.check("a_b")
    collisions.add("c_d")
    with pytest.raises(ApiError, match=r"Topic 'c\.d' collides with existing topic: c_d"):
        collisions.check("c.d")
