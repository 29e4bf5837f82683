"""What bodies raise: text that cannot be a header, that does not fit into a commit, and none at all."""


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("what was wrong cannot be said")


SLIPS = [ValueError("no"), ValueError("unknown item \ud800"), ValueError("\x01" * 500), SpeechlessError()]


def slip(number: int) -> Exception:
    return SLIPS[number % len(SLIPS)]
