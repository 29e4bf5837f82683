"""`Admin`: topics, groups and records of a cluster.

admin = Admin("127.0.0.1:9092")
admin.create("orders", partitions=3)
admin.describe_group("billing").lag
"""

from penstock.client.admin_groups import GroupAdmin, GroupInfo, GroupOffset, GroupSummary, MemberInfo, ResetTo
from penstock.client.admin_topics import PartitionInfo, TopicInfo

__all__ = [
    "Admin",
    "GroupInfo",
    "GroupOffset",
    "GroupSummary",
    "MemberInfo",
    "PartitionInfo",
    "ResetTo",
    "TopicInfo",
]


class Admin(GroupAdmin):
    """One connection for questions and changes; raises `ClientError` with one line that says what to do.

    Topics: `create`, `topics`, `describe`, `alter_configs`, `add_partitions`, `delete`, `delete_records`.
    Groups: `groups`, `describe_group`, `committed`, `reset_offsets`, `delete_group`.
    """
