"""`Admin`: topics, groups and records of a cluster.

admin = Admin("127.0.0.1:9092")
admin.create("orders", partitions=3)
admin.describe_group("billing").lag
"""

from penstock.client.admin.group_info import GroupInfo, GroupOffset, GroupSummary, MemberInfo
from penstock.client.admin.offsets import Move, ResetTo, Shift
from penstock.client.admin.retries import Retries, RetryAdmin
from penstock.client.admin.topics import PartitionInfo, TopicInfo

__all__ = [
    "Admin",
    "GroupInfo",
    "GroupOffset",
    "GroupSummary",
    "MemberInfo",
    "Move",
    "PartitionInfo",
    "ResetTo",
    "Retries",
    "Shift",
    "TopicInfo",
]


class Admin(RetryAdmin):
    """One connection for questions and changes; raises `ClientError` with one line that says what to do.

    Topics: `create`, `topics`, `describe`, `alter_configs`, `add_partitions`, `delete`, `delete_records`.
    Groups: `groups`, `describe_group`, `describe_groups`, `committed`, `plan_reset`, `reset_offsets`,
    `retries`, `delete_group`.
    """
