"""What docs/runbook.md says of a cluster, as it stands there: brokers restarted one by one, and one replaced."""

from tests.integration.cluster.harness import Cluster
from tests.integration.pages import DOCS, blocks, run

PAGE = dict(blocks((DOCS / "runbook.md").read_text()))
WHOLE = "0 under-replicated, 0 offline"


def test_brokers_are_restarted_one_by_one_and_one_gets_an_empty_disk(three: Cluster) -> None:
    place = three.broker(1).data_dir.parent

    def as_written(kind: str) -> list[str]:
        return [run(command, place, three.bootstrap) for command in PAGE[kind].splitlines()]

    with three.load() as load:
        for number in (1, 2, 3):
            three.broker(number).stop()
            three.broker(number).start()
            (status,) = as_written("cluster-each")
            # It returned only when nothing was missing: the next one may go.
            assert WHOLE in status
            load.until_more(20)
        three.broker(3).kill()
        three.wipe(3)
        three.broker(3).start()
        status, verify = as_written("cluster-wiped")
        assert WHOLE in status
        assert "identical" in verify
    load.report().check()
