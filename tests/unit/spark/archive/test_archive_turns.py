"""Logs part from what is archived and come back, with leader epochs and without: what counts is what the line says."""

import random
from dataclasses import replace

import pytest
from tests.unit.spark.archive.lakes import ID, file

from penstock.spark.pipelines.archive.lines import Branch
from penstock.spark.pipelines.archive.topics import TopicArchive

SEEDS = 300
MOVES = 14
# (the entry that it came with, offset): no record is like another.
Record = tuple[int, int]


class Story:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.archive = TopicArchive("t", ID, since=1)
        self.number = 0
        self.line: list[Record] = []
        self.branches: dict[int, list[Record]] = {}
        self.rows: dict[str, dict[int, Record]] = {}

    def run(self) -> None:
        for _ in range(MOVES):
            self.number += 1
            self.dice.choice(
                [self.take, self.part, self.part, self.come_back, self.come_back, self.compact]
            )()
            if self.dice.random() < 0.3:
                self.archive = TopicArchive.from_json(self.archive.as_json())
            self.check()

    def take(self) -> None:
        start, end = len(self.line), len(self.line) + self.dice.randrange(1, 12)
        self.line += [(self.number, offset) for offset in range(start, end)]
        self.archive.line(0).take((start, end), [(self.number, end)] if self.dice.random() < 0.5 else [])
        self._add(dict(enumerate(self.line[start:], start)))

    def _add(self, rows: dict[int, Record]) -> None:
        made = file(self.number, {0: (min(rows), max(rows))}, rows=len(rows))
        self.archive.files[made.path] = made
        self.rows[made.path] = rows

    def part(self) -> None:
        self._turn(self.line, self.dice.randrange(len(self.line) + 1))

    def come_back(self) -> None:
        if branches := self.archive.branches.get(0):
            branch = self.dice.choice(branches)
            line = self.branches[branch.number]
            self._turn(line, self.dice.randrange(branch.fork, len(line)) + 1, branch.number)

    def _turn(self, line: list[Record], offset: int, branch: int | None = None) -> None:
        self.branches[self.number] = self.line
        self.archive.turn(self.number, 0, offset, branch)
        self.line = line[:offset]
        if self.dice.random() < 0.7:
            self.take()

    def compact(self) -> None:
        whole = [path for path, archived in self.archive.files.items() if not archived.limits]
        rows = {offset: record for path in whole for offset, record in self.rows[path].items()}
        for path in whole:
            del self.archive.files[path]
        if rows:
            self._add(rows)

    def check(self) -> None:
        found = [
            row
            for path, archived in self.archive.files.items()
            for row in self.rows[path].items()
            if row[0] < archived.limits.get(0, row[0] + 1)
        ]
        assert sorted(found) == list(enumerate(self.line))
        assert self.archive.line(0).end == len(self.line)


def test_every_record_of_the_line_counts_once() -> None:
    for seed in range(SEEDS):
        Story(seed).run()


def test_it_finds_forks_that_forget_what_branches_share(monkeypatch: pytest.MonkeyPatch) -> None:
    common = Branch.common
    monkeypatch.setattr(
        Branch, "common", lambda branch, other: common(replace(branch, others={}), replace(other, others={}))
    )
    with pytest.raises(AssertionError):
        test_every_record_of_the_line_counts_once()
