"""A follower's log is what it was, whatever stops it: see `follower_story`."""

import os

import pytest
from tests.property.follower_story import Story

SEEDS = int(os.environ.get("PENSTOCK_FOLLOWER_SEEDS", "200"))


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_followers_log_is_what_it_was(first: int) -> None:
    for seed in range(first, first + 50):
        story = Story(seed)
        try:
            story.tell()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {' '.join(story.steps)}") from error
