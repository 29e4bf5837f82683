"""Patterns that transactional ids are listed by: regular expressions of clients, in time that grows with their length.

Python's own would let one request hold up the broker for ever: `(a+)+b` takes two to the power of what it is compared
with. So a pattern becomes a set of states, of which all that are possible are followed at once (Thompson). Understood
is what Java and Python write alike: characters, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`,
`* + ? {m,n}`, `^` and `$`. What else Java knows (references, looking around, possessive quantifiers, flags) is refused
as malformed.
"""

import re
from collections.abc import Callable

from penstock.core.limits import PATTERN_CHARS_MAX, PATTERN_DEPTH_MAX, PATTERN_STATES_MAX

_Test = Callable[[str], object]
_CLASS_ESCAPES = "dDwWsS"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_COUNTED = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
# A class ends at the first bracket that is neither escaped nor its first character.
_CLASS = re.compile(r"\[\^?(?:\\.|[^\\\[\]&])(?:\\.|[^\\\[\]&])*\]", re.DOTALL)
_MANY = None
_REMEMBERED_MAX = 1000


class PatternError(ValueError):
    """Not a pattern, or none that is understood here."""


class _State:
    """Either a test of the next character, or a choice of states to go on from."""

    __slots__ = ("at_end_only", "at_start_only", "following", "test")

    def __init__(self, following: "list[_State]", test: _Test | None = None) -> None:
        self.following = following
        self.test = test
        self.at_start_only = self.at_end_only = False


# Makes the states of a part of the pattern, given what follows it.
_Part = Callable[[_State], _State]


class IdPattern:
    def __init__(self, pattern: str) -> None:
        """PatternError where it cannot be used."""
        if len(pattern) > PATTERN_CHARS_MAX:
            raise PatternError("too long")
        self._states = 0
        self._text, self._at = pattern, 0
        self._end = _State([])
        part = self._alternatives(0)
        if self._at < len(pattern):
            raise PatternError("an unopened group is closed")
        self._begin = part(self._end)
        # What follows from which possible states by which character: most ids share their first characters.
        self._steps: dict[tuple[frozenset[_State], str], frozenset[_State]] = {}

    def matches(self, text: str) -> bool:
        """As a whole."""
        possible = self._reached([self._begin], is_start=True)
        for character in text:
            possible = self._step(possible, character)
            if not possible:
                return False
        return self._end in self._reached(possible, is_start=not text, is_end=True)

    def _step(self, possible: frozenset[_State], character: str) -> frozenset[_State]:
        found = self._steps.get((possible, character))
        if found is None:
            after = [
                state.following[0] for state in possible if state.test is not None and state.test(character)
            ]
            found = self._reached(after)
            if len(self._steps) >= _REMEMBERED_MAX:
                self._steps.clear()
            self._steps[possible, character] = found
        return found

    def _reached(
        self, begin: "list[_State] | frozenset[_State]", *, is_start: bool = False, is_end: bool = False
    ) -> frozenset[_State]:
        """All states that are possible without another character."""
        reached, left = set(begin), list(begin)
        while left:
            state = left.pop()
            if (state.at_start_only and not is_start) or (state.at_end_only and not is_end):
                continue
            for following in () if state.test is not None else state.following:
                if following not in reached:
                    reached.add(following)
                    left.append(following)
        return frozenset(reached)

    # -- reading ---------------------------------------------------------------------------------------------

    def _alternatives(self, depth: int) -> _Part:
        if depth > PATTERN_DEPTH_MAX:
            raise PatternError("too many groups in each other")
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        return lambda following: self._state([part(following) for part in parts])

    def _sequence(self, depth: int) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom(depth)))

        def make(following: _State) -> _State:
            for part in reversed(parts):
                following = part(following)
            return following

        return make

    def _repeated(self, part: _Part) -> _Part:
        counted = _COUNTED.match(self._text, self._at)
        sign = self._peek()
        if counted is not None:
            least = int(counted[1])
            most = least if counted[2] is None else _MANY if counted[3] is None else int(counted[3])
            self._at = counted.end()
        elif sign and sign in "*+?":
            least, most = int(sign == "+"), 1 if sign == "?" else _MANY
            self._at += 1
        else:
            return part
        if most is not _MANY and most < least:
            raise PatternError("at least more than at most")
        if self._peek() == "?":  # as few as possible: the whole is matched all the same
            self._at += 1
        if self._peek() in ("*", "+", "?") or _COUNTED.match(self._text, self._at):
            raise PatternError("a quantifier of a quantifier")
        return lambda following: self._times(part, least, most, following)

    def _times(self, part: _Part, least: int, most: int | None, following: _State) -> _State:
        if most is _MANY:
            again = self._state([following])
            again.following.append(part(again))
            following = again
        else:
            behind = following
            for _ in range(most - least):
                following = self._state([part(following), behind])
        for _ in range(least):
            self._count()  # also where there is nothing to repeat: that takes as long
            following = part(following)
        return following

    def _atom(self, depth: int) -> _Part:
        character = self._peek()
        self._at += 1
        if character == "(":
            return self._group(depth)
        if character == "[":
            found = _CLASS.match(self._text, self._at - 1)
            if found is None:
                raise PatternError("a class that is not understood")
            self._at = found.end()
            return self._testing(_compiled(found[0]))
        if character == "\\":
            return self._testing(self._escaped())
        if character == ".":
            return self._testing(lambda found: found not in "\n\r\u0085\u2028\u2029")
        if character in ("^", "$"):
            return lambda following: self._anchor(following, at_start=character == "^")
        if character in "*+?{":
            raise PatternError("a quantifier of nothing")
        return self._testing(character.__eq__)

    def _group(self, depth: int) -> _Part:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise PatternError("a kind of group that is not understood")
        part = self._alternatives(depth + 1)
        if self._peek() != ")":
            raise PatternError("a group that is not closed")
        self._at += 1
        return part

    def _escaped(self) -> _Test:
        character = self._peek()
        self._at += 1
        if character and character in _CLASS_ESCAPES:
            return _compiled(f"\\{character}")
        if character in _CONTROLS:
            return _CONTROLS[character].__eq__
        if not character or (character.isascii() and character.isalnum()):
            raise PatternError("an escape that is not understood")
        return character.__eq__

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    # -- making ----------------------------------------------------------------------------------------------

    def _testing(self, test: _Test) -> _Part:
        return lambda following: self._state([following], test)

    def _anchor(self, following: _State, *, at_start: bool) -> _State:
        state = self._state([following])
        state.at_start_only, state.at_end_only = at_start, not at_start
        return state

    def _state(self, following: list[_State], test: _Test | None = None) -> _State:
        self._count()
        return _State(following, test)

    def _count(self) -> None:
        self._states += 1
        if self._states > PATTERN_STATES_MAX:
            raise PatternError("too large")


def _compiled(one_character: str) -> _Test:
    try:
        return re.compile(one_character, re.ASCII).fullmatch
    except re.error as error:
        raise PatternError(str(error)) from error
