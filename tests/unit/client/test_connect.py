"""What every librdkafka handle shares."""

from penstock.client.connect import handle_settings


def test_a_process_that_makes_many_handles_keeps_one_handler_of_their_log() -> None:
    logger = handle_settings("127.0.0.1:1", debug=False)["logger"]
    before = len(logger.handlers)
    for _ in range(3):
        handle_settings("127.0.0.1:1", debug=False)
    assert len(logger.handlers) == before
    assert not logger.propagate
