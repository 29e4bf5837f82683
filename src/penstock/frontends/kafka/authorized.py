"""The bit sets of operations a client may do, as answers carry them; without an authorizer it may do all there are."""

NOT_ASKED = -(2**31)
# Bits are Kafka's AclOperation codes: read 3, write 4, create 5, delete 6, alter 7, describe 8, cluster action 9,
# describe configs 10, alter configs 11, idempotent write 12.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
# Read 3, delete 6, describe 8, and (since they have settings of their own) describe configs 10 and alter configs 11.
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
