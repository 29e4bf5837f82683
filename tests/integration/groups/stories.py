"""What members of a group go through, whatever their client: told once, run for each of them."""

from itertools import count

from tests.integration.groups.crew import Crew
from tests.integration.raw import wait_until

PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "300", "group.min.session.timeout.ms": "1000"}
COOPERATIVE = "cooperative-sticky"
names = count()


def share_the_work_and_leave(crew: Crew) -> None:
    first, second = crew.hire(), crew.hire()
    crew.wait_for_owners(first, second, partitions=PARTITIONS)
    crew.produce(40, PARTITIONS)
    crew.wait_for_all_processed()
    assert len(first.processed) + len(second.processed) == 40, "nobody left, so nothing came twice"
    second.stop()
    crew.wait_for_owners(first, partitions=PARTITIONS)
    crew.produce(20, PARTITIONS)
    crew.wait_for_all_processed()
    crew.check_work()


def crash(crew: Crew) -> None:
    first, second = crew.hire(), crew.hire()
    crew.wait_for_owners(first, second, partitions=PARTITIONS)
    crew.produce(40, PARTITIONS)
    wait_until(lambda: bool(second.processed), "the second works")
    second.kill()
    crew.wait_for_owners(first, partitions=PARTITIONS)
    crew.wait_for_all_processed()
    seen = [place[:2] for place in first.processed]
    assert len(seen) == len(set(seen)), "the one that stayed saw nothing twice"
    crew.check_work()


def restart_a_static_member(crew: Crew) -> None:
    first, second = crew.hire(instance="one"), crew.hire(instance="two")
    crew.wait_for_owners(first, second, partitions=PARTITIONS)
    before = set(second.assigned)
    revocations = len(first.revocations)
    second.kill()
    third = crew.hire(instance="two")
    crew.wait_for_owners(first, third, partitions=PARTITIONS)
    assert third.assigned == before
    crew.produce(40, PARTITIONS)
    crew.wait_for_all_processed()
    assert len(first.revocations) == revocations, "the other one noticed nothing"
    crew.check_work()


def keep_what_need_not_be_given_up(crew: Crew) -> None:
    first = crew.hire(strategy=COOPERATIVE)
    crew.wait_for_owners(first, partitions=PARTITIONS)
    second = crew.hire(strategy=COOPERATIVE)
    crew.wait_for_owners(first, second, partitions=PARTITIONS)
    assert [len(revoked) for revoked in first.revocations if revoked] == [PARTITIONS // 2]
    crew.produce(40, PARTITIONS)
    crew.wait_for_all_processed()
    crew.check_work()


def restart_one_by_one_under_load(crew: Crew, members: int, strategy: str, *, static: bool = False) -> None:
    """Each is replaced when the one before it has partitions again, as a careful operator does it."""

    def wanted(number: int) -> dict[str, str]:
        chosen = {"strategy": strategy}
        return chosen | {"instance": f"member-{number}"} if static else chosen

    workers = [crew.hire(**wanted(number)) for number in range(members)]
    crew.wait_for_owners(*workers, partitions=members)
    with crew.load(members):
        for number in range(members):
            workers[number].stop()
            workers[number] = crew.hire(**wanted(number))
            crew.wait_for_owners(*workers, partitions=members)
    crew.wait_for_all_processed()
    crew.check_work()
