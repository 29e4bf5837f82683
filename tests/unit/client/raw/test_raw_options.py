"""Kafka's setting names: what is honoured, what has no effect, and what must not pass in silence."""

import pickle

import pytest

from penstock.client.raw import OptionError, RawOptions
from penstock.client.raw.options import HONOURED, REFUSED, WITHOUT_EFFECT


def test_settings_reach_their_fields() -> None:
    options = RawOptions.from_kafka(
        {
            "client.id": "me",
            "request.timeout.ms": "1500",
            "default.api.timeout.ms": 7000,
            "receive.buffer.bytes": -1,
            "acks": "all",
            "retries": "3",
            "isolation.level": "read_committed",
            "compression.type": "LZ4",
            "security.protocol": "plaintext",
        }
    )
    assert options == RawOptions(
        client_id="me",
        request_timeout_ms=1500,
        api_timeout_ms=7000,
        retries_max=3,
        committed=True,
        compression="lz4",
    )


def test_the_smaller_bound_holds_for_a_fetch() -> None:
    both = {"fetch.max.bytes": "8000000", "max.partition.fetch.bytes": "1000000"}
    assert RawOptions.from_kafka(both).fetch_bytes == 1_000_000
    assert RawOptions.from_kafka({"fetch.max.bytes": "8000000"}).fetch_bytes == 8_000_000
    assert RawOptions.from_kafka({}).fetch_bytes == 4 << 20


def test_settings_without_a_meaning_here_are_accepted() -> None:
    assert RawOptions.from_kafka(dict.fromkeys(WITHOUT_EFFECT, "1")) == RawOptions()


@pytest.mark.parametrize("name", [*REFUSED, "sasl.mechanism", "ssl.truststore.location"])
def test_what_would_silently_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        RawOptions.from_kafka({name: "something"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "SASL_SSL"}, "PLAINTEXT only"),
        ({"fetch.max.byte": 1}, r"fetch\.max\.byte is no setting .* did you mean fetch\.max\.bytes"),
        ({"zzzz": 1}, "zzzz is no setting of a Kafka client: remove it"),
        ({"request.timeout.ms": "soon"}, "give a whole number"),
        ({"request.timeout.ms": 0}, "give a number from 1"),
        ({"fetch.max.bytes": 0}, "give a number from 1"),
        ({"max.in.flight.requests.per.connection": 6}, "from 1 to 5"),
        ({"acks": 2}, "give one of all, -1, 1, 0"),
        ({"compression.type": "rar"}, "give one of none, gzip"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RawOptions.from_kafka(settings)


def test_every_honoured_name_has_a_field() -> None:
    fields = set(RawOptions.__dataclass_fields__)
    assert {field for field, _ in HONOURED.values()} <= fields
    assert not set(HONOURED) & WITHOUT_EFFECT
    assert not set(REFUSED) & (WITHOUT_EFFECT | set(HONOURED))


def test_options_travel_to_other_processes() -> None:
    options = RawOptions(client_id="far")
    assert pickle.loads(pickle.dumps(options)) == options
