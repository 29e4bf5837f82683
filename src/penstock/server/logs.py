"""Logs on stderr: one line per event, as text for people or as JSON for machines (`penstock.log.format`)."""

import json
import logging
import sys
from datetime import UTC, datetime

from penstock.core.limits import LOG_MESSAGE_CHARS_MAX, LOG_REPEATS_MAX, LOG_REPEATS_SECONDS

# Texts that are remembered; they are written in our code, so there are not many more.
_KINDS_MAX = 1000


class Cut(logging.Filter):
    """A message may quote what a client has sent: so much of it is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if len(message) > LOG_MESSAGE_CHARS_MAX:
            record.msg = f"{message[:LOG_MESSAGE_CHARS_MAX]}… ({len(message)} characters)"
            record.args = None
        return True


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class Repeats(logging.Filter):
    """Of lines that say the same of many things only some are written; the next one tells how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, object], tuple[float, int]] = {}  # since when, how many

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, record.msg)
        since, count = self._seen.get(key, (record.created, 0))
        if record.created - since >= LOG_REPEATS_SECONDS:
            if count > LOG_REPEATS_MAX and isinstance(record.msg, str):
                record.msg += f" (and {count - LOG_REPEATS_MAX} more like this were left out)"
            since, count = record.created, 0
        if len(self._seen) >= _KINDS_MAX:
            self._seen.clear()
        self._seen[key] = (since, count + 1)
        return count < LOG_REPEATS_MAX


def set_up(log_format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    handler.addFilter(Repeats())  # first: it goes by the text without what it speaks of
    handler.addFilter(Cut())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
